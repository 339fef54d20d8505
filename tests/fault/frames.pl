#!/usr/bin/perl
# frames.pl - talks nonsense to a socket: for the bats files
#
#   frames.pl send ADDRESS ROLE N SEED CORPUS [TYPES]   N connections. ROLE raw: the nonsense comes first; client, worker, source: after a handshake in order.
#                                                       TYPES: a pattern of the corpus' files to take.
#   frames.pl serve PATH SEED                           listens on a Unix socket and answers everybody with nonsense, until ended
#   frames.pl greet ADDRESS MAJOR NODE                  says HELLO as the worker of NODE in another version of the protocol, prints the types that are answered
#   frames.pl hold ADDRESS N                            N connections that say nothing, until ended
# ADDRESS: unix:PATH or HOST:PORT. "send" prints how many connections the other end closed, and how many it left open.
use strict; use warnings;
use IO::Socket::UNIX; use IO::Socket::INET; use IO::Select;
$SIG{PIPE} = 'IGNORE';

sub dial {
    my ($address) = @_;
    for (1 .. 200) {        # a listener may be busy for a moment
        my $s = $address =~ s/^unix://r ne $address ? IO::Socket::UNIX->new(Peer => $address =~ s/^unix://r) : IO::Socket::INET->new(PeerAddr => $address);
        return $s if $s;
        select(undef, undef, undef, 0.05);
    }
    die "cannot connect to $address: $!\n";
}
sub frame { my ($type, $body, $id) = @_; return pack('v C C v v V V', 0x4c53, 1, 0, 0, $type, length($body), $id // 1) . $body; }
sub varint { my ($v) = @_; my $s = ''; while ($v > 127) { $s .= chr($v & 127 | 128); $v >>= 7; } return $s . chr($v); }
sub field { my ($n, $text) = @_; return varint($n << 3 | 2) . varint(length $text) . $text; }
sub read_n {                # undef: closed, or nothing for 10 s
    my ($s, $n) = @_; my ($got, $sel) = ('', IO::Select->new($s));
    while (length($got) < $n) { return undef unless $sel->can_read(10) && sysread($s, my $more, $n - length $got); $got .= $more; }
    return $got;
}
sub read_frame { my ($s) = @_; my $head = read_n($s, 16) // return; my ($type, $len) = (unpack 'v C C v v V V', $head)[4, 5]; my $body = $len ? read_n($s, $len) : ''; return defined $body ? $type : undef; }
sub shake_hands {
    my ($s, $role) = @_; my %number = (client => 1, worker => 2, source => 3);
    syswrite $s, frame(5, "\x08\x01" . "\x10\x00" . field(4, '0.1.0') . "\x28" . varint($number{$role}) . field(6, 'nonsense'));
    while (defined(my $type = read_frame($s))) { return 1 if $type == 8; return 0 if $type == 3; }
    return 0;
}

# ---- nonsense ----
my @corpus;
sub any { return $_[int rand @_]; }
sub bytes { return join '', map { chr int rand 256 } 1 .. shift; }
sub reframed { my ($f, $body) = @_; return substr($f, 0, 8) . pack('V', length $body) . substr($f, 12, 4) . $body; }
my @kinds = (
    sub { bytes(16 + rand 400) },                                                                              # garbage
    sub { my $f = any(@corpus); substr($f, rand length $f, 1) = chr int rand 256 for 1 .. 1 + rand 8; $f },     # flipped bytes
    sub { my $f = any(@corpus); my $b = substr $f, 16; substr($b, rand length $b, 1) = chr int rand 256 for 1 .. 1 + rand 4; reframed($f, $b) },
    sub { my $f = any(@corpus); reframed($f, substr $f, 16, int rand length $f) },                              # required fields missing
    sub { my $f = any(@corpus); substr($f, 8, 4) = pack 'V', any(0xffffffff, 0x7fffffff, 0x80000000, 100 << 20, 0); $f },   # huge lengths
    sub { my $f = any(@corpus); substr($f, 6, 2) = pack 'v', int rand 65536; $f },                              # unknown types
    sub { my $f = any(@corpus); substr($f, 3, 1) = chr any(1, 16, 17, 255); $f },                               # descriptors that do not come
    sub { my $f = any(@corpus); my $b = ''; $b = chr((1 + int rand 15) << 3 | 2) . varint(length $b) . $b for 1 .. 300; reframed($f, $b) },   # deep nesting
    sub { my $f = any(@corpus); reframed($f, (chr((1 + int rand 15) << 3 | 2) . "\0") x 30000) },               # huge repeated counts
    sub { my $f = any(@corpus); reframed($f, chr((1 + int rand 15) << 3 | 2) . "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" . 'x' x 40) },   # a length beyond 2^63
    sub { my $f = any(@corpus); reframed($f, join '', map { field(1 + int rand 15, "a\xc0\xafb\xff\xed\xa0\x80" . bytes(4)) } 1 .. 20) },   # no UTF-8
    sub { my $f = any(@corpus); reframed($f, join '', map { chr((1 + int rand 15) << 3 | any(0, 1, 3, 4, 5, 6, 7)) . bytes(1 + rand 10) } 1 .. 20) },   # wrong wire types
    sub { any(@corpus) x 50 },                                                                                   # the right thing at the wrong time
);

my ($what, $address, @rest) = @ARGV;
if ($what eq 'send') {
    my ($role, $n, $seed, $folder, $types) = @rest; $types //= '.';
    srand $seed; print "seed $seed\n";
    for my $file (sort grep { m{/[A-Z_]+$} && m{/(?:$types)} } glob "$folder/*") { open my $f, '<:raw', $file or die; local $/; push @corpus, <$f>; }
    die "no corpus in $folder\n" unless @corpus;
    my ($closed, $open, $refused) = (0, 0, 0);
    for my $i (1 .. $n) {
        my $s = dial($address);
        if ($role ne 'raw' && !shake_hands($s, $role)) { $refused++; next; }
        my $kind = $kinds[$i % @kinds];
        syswrite $s, $kind->();
        # garbage is never answered by anything but the end; of the rest some may be good by chance
        my ($sel, $limit, $end) = (IO::Select->new($s), $i % @kinds ? 0.1 : 10, 0);
        while ($sel->can_read($limit)) { last if $end = !sysread $s, my $more, 65536; }
        $end ? $closed++ : $open++;
        die "garbage was listened to for 10 s (connection $i)\n" if !$end && $i % @kinds == 0;
    }
    print "closed $closed open $open refused $refused\n";
} elsif ($what eq 'serve') {
    srand $rest[0];
    my $l = IO::Socket::UNIX->new(Local => $address, Listen => 50) or die "$address: $!";
    @corpus = (frame(6, bytes(80)));
    for (my $i = 0; my $s = $l->accept; $i++) { read_frame($s); syswrite $s, $kinds[$i % @kinds]->(); }
} elsif ($what eq 'greet') {
    my $s = dial($address); my @types;
    syswrite $s, frame(5, "\x08" . varint($rest[0]) . "\x10\x00" . field(4, "$rest[0].0.0") . "\x28\x02" . field(6, $rest[1]));
    while (defined(my $type = read_frame($s))) { push @types, $type; }
    print "@types\n";
} elsif ($what eq 'hold') {
    my @held = map { dial($address) } 1 .. $rest[0];
    $| = 1; print "holding\n"; sleep 3600;
}
