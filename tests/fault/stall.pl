#!/usr/bin/perl
# stall.pl - the server of a FUSE file system on descriptor 7: it answers that it is there, takes every question after that, and answers none.
# Whoever asks waits in the kernel and cannot be killed until this process ends.
use strict;
use warnings;

open my $fuse, '+<&=', 7 or die "descriptor 7: $!";
my $init = 26;
while (1) {
    my $n = sysread $fuse, my $question, 1 << 21;
    defined $n or exit 0;
    my ($length, $what, $number) = unpack 'L L Q', $question;
    next if $what != $init;
    my ($major, $minor, $ahead) = unpack 'L L L', substr $question, 40;
    my $answer = pack 'L4 S2 L2 S2 L8', 7, $minor < 31 ? $minor : 31, $ahead, 0, 8, 6, 4096, 1, 1, 0, (0) x 8;
    syswrite $fuse, pack('L l Q', 16 + length $answer, 0, $number) . $answer;
}
