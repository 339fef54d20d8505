# etc/ - sample configuration, and what ./quickstart and ./check share
EXTRA_DIST += %D%/sluice.conf %D%/packages %D%/setup.sh %D%/quickstart-summary
EXTRA_DIST += quickstart check NEWS.md README.md COPYING
