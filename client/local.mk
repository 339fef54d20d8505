# client/ - the command sluice; sees proto, base
CLIENT_CPPFLAGS = $(PROTO_CPPFLAGS) -I$(srcdir)/client -DSLUICE_LIBEXECDIR='"$(libexecdir)"' -DSLUICE_SBINDIR='"$(sbindir)"' -DSLUICE_BINDIR='"$(bindir)"'
CLIENT_LIBS     = client/libclient.a $(PROTO_LIBS) $(BASE_LIBS)

noinst_LIBRARIES += client/libclient.a
client_libclient_a_CPPFLAGS = $(CLIENT_CPPFLAGS)
client_libclient_a_SOURCES = \
	%D%/archive.c %D%/archive.h \
	%D%/args.c %D%/command.h \
	%D%/call.c %D%/call.h \
	%D%/change.c %D%/change.h \
	%D%/cmd_config.c \
	%D%/cmd_crash.c \
	%D%/cmd_diag.c \
	%D%/cmd_dump.c \
	%D%/cmd_health.c \
	%D%/cmd_help.c \
	%D%/cmd_history.c \
	%D%/cmd_hostlist.c \
	%D%/cmd_job.c \
	%D%/cmd_logs.c \
	%D%/cmd_mark.c \
	%D%/cmd_move.c \
	%D%/cmd_nice.c \
	%D%/cmd_node_show.c \
	%D%/cmd_nodes.c %D%/nodes_listing.h \
	%D%/cmd_replay.c \
	%D%/cmd_shm.c \
	%D%/cmd_shm_clean.c \
	%D%/cmd_run.c %D%/run_options.h \
	%D%/cmd_status.c \
	%D%/cmd_submit.c \
	%D%/cmd_up.c \
	%D%/cmd_wait.c \
	%D%/cmd_why.c \
	%D%/farm.c %D%/farm.h \
	%D%/full.c %D%/full.h \
	%D%/launch.c %D%/launch.h \
	%D%/local.c %D%/local.h \
	%D%/message.c %D%/message.h \
	%D%/nodelist.c %D%/nodelist.h \
	%D%/paths.c %D%/paths.h \
	%D%/progress.c %D%/progress.h \
	%D%/scan.c %D%/scan.h \
	%D%/shares.c %D%/shares.h \
	%D%/show.c %D%/show.h \
	%D%/stages.c %D%/stages.h \
	%D%/spec.c %D%/spec.h

bin_PROGRAMS += sluice
sluice_SOURCES = %D%/main.c
sluice_CPPFLAGS = $(CLIENT_CPPFLAGS)
sluice_LDADD = $(CLIENT_LIBS)
