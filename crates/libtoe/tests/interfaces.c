// Prints what each list of interfaces has for the one with the address that is its argument.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static struct in_addr wanted;

static int is_wanted(const void *address) {
    const struct sockaddr_in *in = address;
    return in && in->sin_family == AF_INET && in->sin_addr.s_addr == wanted.s_addr;
}

static const char *text(const void *address) {
    static char texts[4][INET_ADDRSTRLEN];
    static int next;
    const struct sockaddr_in *in = address;
    return in ? inet_ntop(AF_INET, &in->sin_addr, texts[next++ % 4], INET_ADDRSTRLEN) : "none";
}

static char name[IF_NAMESIZE] = "nothing";

static void by_getifaddrs(void) {
    struct ifaddrs *list, *at;
    if (getifaddrs(&list) < 0)
        return perror("getifaddrs");
    for (at = list; at; at = at->ifa_next)
        if (is_wanted(at->ifa_addr)) {
            printf("getifaddrs %s %s %s %s up %d loopback %d\n", at->ifa_name, text(at->ifa_addr), text(at->ifa_netmask),
                   text(at->ifa_broadaddr), !!(at->ifa_flags & IFF_UP), !!(at->ifa_flags & IFF_LOOPBACK));
            strcpy(name, at->ifa_name);
        }
    int links = 0, loopback = 0;
    for (at = list; at; at = at->ifa_next) {
        struct sockaddr_ll *card = (void *)at->ifa_addr;
        loopback += at->ifa_flags & IFF_LOOPBACK && is_wanted(at->ifa_addr) == 0;
        if (card && card->sll_family == AF_PACKET && !strcmp(at->ifa_name, name))
            links++, printf("card %d bytes ending in %02x\n", card->sll_halen, card->sll_addr[5]);
    }
    printf("links %d, the kernel's loopback too: %d\n", links, loopback > 0);
    freeifaddrs(list);
}

static void by_index(void) {
    char again[IF_NAMESIZE] = "";
    unsigned index = if_nametoindex(name), found = 0, kernels = 0;
    if_indextoname(index, again);
    struct if_nameindex *list = if_nameindex();
    for (int i = 0; list && list[i].if_index; i++) {
        found += list[i].if_index == index && !strcmp(list[i].if_name, name);
        kernels += list[i].if_index == 1;
    }
    if_freenameindex(list);
    printf("index %d, back %s, listed %u beside %u\n", index > 0, again, found, kernels);
    printf("no such name %u, no such index %d\n", if_nametoindex("opentoe77"), if_indextoname(0x7e0e + 77, again) == NULL);
}

static void by_ioctl(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq space[32], one;
    struct ifconf all = {.ifc_len = sizeof space, .ifc_req = space}, none = {.ifc_len = 0}, little = {.ifc_len = sizeof one, .ifc_req = &one};
    ioctl(fd, SIOCGIFCONF, &all);
    ioctl(fd, SIOCGIFCONF, &none);
    ioctl(fd, SIOCGIFCONF, &little);
    int found = 0;
    for (unsigned i = 0; i < all.ifc_len / sizeof one; i++)
        found += is_wanted(&space[i].ifr_addr) && !strcmp(space[i].ifr_name, name);
    printf("SIOCGIFCONF %d, needs as much as it gave %d, little %d\n", found, none.ifc_len == all.ifc_len, little.ifc_len == sizeof one);
    memset(&one, 0, sizeof one);
    strcpy(one.ifr_name, name);
    ioctl(fd, SIOCGIFADDR, &one);
    printf("SIOCGIFADDR %s", text(&one.ifr_addr));
    ioctl(fd, SIOCGIFNETMASK, &one);
    printf(" %s", text(&one.ifr_netmask));
    ioctl(fd, SIOCGIFBRDADDR, &one);
    printf(" %s", text(&one.ifr_broadaddr));
    ioctl(fd, SIOCGIFFLAGS, &one);
    printf(" up %d", !!(one.ifr_flags & IFF_UP));
    ioctl(fd, SIOCGIFMTU, &one);
    printf(" mtu %d", one.ifr_mtu);
    ioctl(fd, SIOCGIFHWADDR, &one);
    printf(" card %02x", (unsigned char)one.ifr_hwaddr.sa_data[5]);
    ioctl(fd, SIOCGIFINDEX, &one);
    printf(" index %d", (unsigned)one.ifr_ifindex == if_nametoindex(name));
    memset(one.ifr_name, 0, sizeof one.ifr_name);
    ioctl(fd, SIOCGIFNAME, &one);
    printf(" name %s, null %d\n", one.ifr_name, ioctl(fd, SIOCGIFADDR, NULL));
    close(fd);
}

// As the kernel's answers, in parts; the family is unspecified.
static void by_netlink(int type, int peek) {
    struct {
        struct nlmsghdr header;
        struct rtgenmsg message;
    } request = {{sizeof request, type, NLM_F_REQUEST | NLM_F_DUMP, 77, 0}, {AF_UNSPEC}};
    struct sockaddr_nl kernel = {AF_NETLINK};
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), found = 0, kernels = 0, done = 0, strange = 0, whole = 0;
    sendto(fd, &request, sizeof request, 0, (void *)&kernel, sizeof kernel);
    while (!done) {
        static char space[65536] __attribute__((aligned(8)));
        struct sockaddr_nl from = {0};
        struct iovec piece = {space, peek ? 0 : sizeof space};
        struct msghdr message = {&from, sizeof from, &piece, 1};
        long len = recvmsg(fd, &message, peek ? MSG_PEEK | MSG_TRUNC : 0), again;
        if (peek) {
            piece.iov_len = sizeof space;
            again = recvmsg(fd, &message, 0);
            whole += again == len;
            len = again;
        }
        strange += from.nl_pid != 0 || from.nl_family != AF_NETLINK;
        if (len <= 0)
            break;
        struct nlmsghdr *at = (void *)space;
        for (; NLMSG_OK(at, len); at = NLMSG_NEXT(at, len)) {
            strange += at->nlmsg_seq != 77;
            done |= at->nlmsg_type == NLMSG_DONE;
            int index = at->nlmsg_type == RTM_NEWADDR ? (int)((struct ifaddrmsg *)NLMSG_DATA(at))->ifa_index
                                                      : ((struct ifinfomsg *)NLMSG_DATA(at))->ifi_index;
            if (at->nlmsg_type == NLMSG_DONE)
                continue;
            found += (unsigned)index == if_nametoindex(name);
            kernels += index == 1;
        }
    }
    printf("netlink %d: %d beside the kernel's %d, strange %d, peeked %d\n", type, found, kernels > 0, strange, whole > 1);
    // The number may be another's now.
    close(fd);
    int other = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    char byte;
    printf("nothing is left %d\n", recv(other, &byte, 1, MSG_DONTWAIT) < 0);
    close(other);
}

int main(int count, char **arguments) {
    if (count < 2 || !inet_aton(arguments[1], &wanted))
        return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    by_getifaddrs();
    by_index();
    by_ioctl();
    by_netlink(RTM_GETLINK, 0);
    by_netlink(RTM_GETADDR, 1);
    return 0;
}
