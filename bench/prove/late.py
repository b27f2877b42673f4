"""A bad line to this machine itself: packets come late, out of order, and one in ten twice.

    unshare --net python3 bench/prove/late.py     (it takes root)

It takes what goes out to 10.9.0.2, and hands it back as if from there, to 127.0.0.1.
"""

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import time

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000

line = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(line, TUNSETIFF, struct.pack("16sH", b"late", IFF_TUN | IFF_NO_PI))
for command in [
    "ip address add 10.9.0.1/24 dev late",
    "ip link set late up",
    "sysctl -q net.ipv4.conf.late.route_localnet=1",
    "iptables -t nat -A PREROUTING -i late -p tcp -j DNAT --to-destination 127.0.0.1",
]:
    subprocess.run(command.split(), check=True)
print("{}", flush=True)
under_way = []
while True:
    wait = max(0, under_way[0][0] - time.monotonic()) if under_way else None
    if select.select([line], [], [], wait)[0]:
        packet = os.read(line, 65536)
        if packet[0] >> 4 == 4:
            # The addresses change places, which leaves every checksum as it is.
            back = packet[:12] + packet[16:20] + packet[12:16] + packet[20:]
            for _ in range(2 if random.random() < 0.1 else 1):
                due = time.monotonic() + random.uniform(0.001, 0.008)
                heapq.heappush(under_way, (due, back))
    while under_way and under_way[0][0] <= time.monotonic():
        os.write(line, heapq.heappop(under_way)[1])
