# etc/ - sample configuration, service files, completion, and what ./quickstart and ./check share
EXTRA_DIST += %D%/sluice.conf %D%/packages %D%/setup.sh %D%/quickstart-summary
EXTRA_DIST += quickstart NEWS.md README.md COPYING
# Not in EXTRA_DIST: it has the name of a target, and `make dist` would come to `make check`.
dist-hook:
	cp -p $(srcdir)/check $(distdir)/check

# Units of systemd know where the programs were installed.
UNITS = %D%/systemd/sluiced.service %D%/systemd/sluice-worker.service
systemdunitdir = $(prefix)/lib/systemd/system
systemdunit_DATA = $(UNITS)
EXTRA_DIST += $(UNITS:=.in)
CLEANFILES += $(UNITS)
$(UNITS): Makefile
	$(AM_V_GEN)$(MKDIR_P) $(@D) && sed 's|[@]sbindir@|$(sbindir)|g' $(srcdir)/$@.in >$@.new && mv $@.new $@
%D%/systemd/sluiced.service: %D%/systemd/sluiced.service.in
%D%/systemd/sluice-worker.service: %D%/systemd/sluice-worker.service.in

logrotatedir = $(sysconfdir)/logrotate.d
dist_logrotate_DATA = %D%/logrotate/sluice

# Completion is what the table of commands says.
bashcompletiondir = $(datadir)/bash-completion/completions
bashcompletion_DATA = %D%/completion/sluice
zshcompletiondir = $(datadir)/zsh/site-functions
zshcompletion_DATA = %D%/completion/_sluice
CLEANFILES += $(bashcompletion_DATA) $(zshcompletion_DATA)
%D%/completion/sluice: sluice$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) $(@D) && ./sluice help --completion bash >$@.new && mv $@.new $@
%D%/completion/_sluice: sluice$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) $(@D) && ./sluice help --completion zsh >$@.new && mv $@.new $@
