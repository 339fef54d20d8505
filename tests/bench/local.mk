# tests/bench/
include $(srcdir)/tests/bench/flow.mk
