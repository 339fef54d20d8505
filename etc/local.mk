# etc/ - sample configuration, and what ./quickstart and ./check share
EXTRA_DIST += %D%/sluice.conf %D%/packages %D%/setup.sh %D%/quickstart-summary
EXTRA_DIST += quickstart NEWS.md README.md COPYING
# Not in EXTRA_DIST: it has the name of a target, and `make dist` would come to `make check`.
dist-hook:
	cp -p $(srcdir)/check $(distdir)/check
