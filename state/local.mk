# state/ - what survives a restart: schema, migrations, transactions, rows; sees base
noinst_LIBRARIES += state/libstate.a

state_libstate_a_CPPFLAGS = $(STATE_CPPFLAGS)
state_libstate_a_SOURCES = \
	%D%/db.c %D%/db.h %D%/db_private.h \
	%D%/guard.c \
	%D%/mend.c \
	%D%/migrate.c \
	%D%/recover.c \
	%D%/rescue.c \
	%D%/rows.c %D%/rows.h \
	%D%/salvage.c
nodist_state_libstate_a_SOURCES = state/schema_sql.h

BUILT_SOURCES += state/schema_sql.h
CLEANFILES += state/schema_sql.h
EXTRA_DIST += %D%/schema.sql %D%/schema_sql.awk

state/schema_sql.h: $(srcdir)/state/schema.sql $(srcdir)/state/schema_sql.awk
	$(AM_V_GEN)$(MKDIR_P) state && $(AWK) -f $(srcdir)/state/schema_sql.awk $(srcdir)/state/schema.sql > $@.tmp && mv $@.tmp $@
state/libstate_a-db.$(OBJEXT): state/schema_sql.h
dist_doc_DATA += doc/state.md
