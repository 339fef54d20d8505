# tests/fake/ - workers and sources by the hundred in one process, for system tests and benches; they speak the real protocol
check_PROGRAMS += tests/fake/fake-worker tests/fake/fake-source tests/fake/fake-mutant tests/fake/fake-people

FAKE_LIBS = proto/libproto.a $(PROTOBUF_C_LIBS) $(XXHASH_LIBS) $(EV_LIBS) $(NETTLE_LIBS) $(MUNGE_LIBS) -lm $(BASE_LIBS)

tests_fake_fake_worker_SOURCES = %D%/worker.c %D%/worker.h %D%/worker_opt.c %D%/worker_show.c %D%/worker_tf.c \
	%D%/fake.c %D%/fake.h %D%/fetch.c %D%/fetch.h
tests_fake_fake_worker_CPPFLAGS = $(PROTO_CPPFLAGS)
tests_fake_fake_worker_LDADD = $(FAKE_LIBS)

tests_fake_fake_source_SOURCES = %D%/source.c %D%/fake.c %D%/fake.h
tests_fake_fake_source_CPPFLAGS = $(PROTO_CPPFLAGS)
tests_fake_fake_source_LDADD = $(FAKE_LIBS)

tests_fake_fake_mutant_SOURCES = %D%/mutant.c %D%/fake.c %D%/fake.h tests/fuzz/fill.c tests/fuzz/fill.h
tests_fake_fake_mutant_CPPFLAGS = $(PROTO_CPPFLAGS)
tests_fake_fake_mutant_LDADD = $(FAKE_LIBS)

tests_fake_fake_people_SOURCES = %D%/people.c %D%/fake.c %D%/fake.h
tests_fake_fake_people_CPPFLAGS = $(PROTO_CPPFLAGS)
tests_fake_fake_people_LDADD = $(FAKE_LIBS)

# in the place of sluice-slurm
check_PROGRAMS += tests/fake/fake-slurm
tests_fake_fake_slurm_SOURCES = %D%/slurm.c
tests_fake_fake_slurm_CPPFLAGS = $(PROTO_CPPFLAGS) -I$(srcdir)/scheduler
tests_fake_fake_slurm_LDADD = scheduler/libslurmserve.a $(FAKE_LIBS)
