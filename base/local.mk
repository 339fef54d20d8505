# base/ - sees nothing of ours
noinst_LIBRARIES += base/libbase.a
base_libbase_a_CPPFLAGS = $(BASE_CPPFLAGS)
base_libbase_a_SOURCES = \
	%D%/err.c %D%/err.h \
	%D%/log.c %D%/log.h \
	%D%/mem.c %D%/mem.h \
	%D%/clock.c %D%/clock.h \
	%D%/str.c %D%/str.h \
	%D%/heap.c %D%/heap.h \
	%D%/hostlist.c %D%/hostlist.h \
	%D%/constraint.c %D%/constraint.h \
	%D%/file.c %D%/file.h \
	%D%/notify.c %D%/notify.h \
	%D%/conf.c %D%/conf.h %D%/conf_part.h \
	%D%/conf_keys.c %D%/conf_syntax.c %D%/conf_value.c
