# base/ - sees nothing of ours
noinst_LIBRARIES += base/libbase.a
base_libbase_a_CPPFLAGS = $(BASE_CPPFLAGS)
base_libbase_a_SOURCES = \
	%D%/err.h \
	%D%/log.h \
	%D%/mem.h \
	%D%/clock.h \
	%D%/str.h \
	%D%/heap.h \
	%D%/hostlist.h \
	%D%/file.h \
	%D%/conf.h
