# tests/ - each folder's unit tests are listed in tests/unit/FOLDER.mk; a system test is a bats file
if HAVE_CMOCKA
include $(srcdir)/tests/unit/base.mk
include $(srcdir)/tests/unit/proto.mk
include $(srcdir)/tests/unit/state.mk
include $(srcdir)/tests/unit/kernels.mk
include $(srcdir)/tests/unit/worker.mk
include $(srcdir)/tests/unit/scheduler.mk
include $(srcdir)/tests/unit/client.mk
endif
