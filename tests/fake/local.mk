# tests/fake/
