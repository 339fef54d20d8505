# tests/fuzz/
