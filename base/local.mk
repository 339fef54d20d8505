# base/ - sees nothing of ours
noinst_LIBRARIES += base/libbase.a
base_libbase_a_CPPFLAGS = $(BASE_CPPFLAGS)
base_libbase_a_SOURCES = \
	%D%/err.c %D%/err.h \
	%D%/log.c %D%/log.h
