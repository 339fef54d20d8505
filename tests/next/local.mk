# tests/next/ - sluiced and sluice-worker of a release to come: the same but for what they say at the handshake (tests/system/upgrade.bats)
check_PROGRAMS += tests/next/sluiced tests/next/sluice-worker
NEXT_CPPFLAGS = -DPROTO_MINOR=7 '-DPROTO_FEATURES=UINT64_C(5)' '-DPROTO_SOFTWARE="99.1.0"'
# Those who shake hands, in place of the library's.
NEXT_SOURCES = proto/connector.c proto/listener.c

tests_next_sluiced_SOURCES = scheduler/main.c $(NEXT_SOURCES)
tests_next_sluiced_CPPFLAGS = $(SCHEDULER_CPPFLAGS) $(NEXT_CPPFLAGS)
tests_next_sluiced_LIBTOOLFLAGS = $(sluiced_LIBTOOLFLAGS)
tests_next_sluiced_LDADD = $(sluiced_LDADD)

tests_next_sluice_worker_SOURCES = worker/main.c $(NEXT_SOURCES)
tests_next_sluice_worker_CPPFLAGS = $(sluice_worker_CPPFLAGS) $(NEXT_CPPFLAGS)
tests_next_sluice_worker_LDADD = $(sluice_worker_LDADD)
