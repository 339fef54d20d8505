# etc/
