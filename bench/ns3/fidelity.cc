// Flow completion times over the number of out-of-order intervals that receivers keep (thesis section 5.5.4.3, table
// 5.3), on ns-3: a leaf-spine network of 96 hosts, partition-aggregate of 8 KiB over background flows.
//
// The receiver is ns-3's, except that a segment which would need one interval more than it may keep is dropped and
// acknowledged. All else (sender, SACK, recovery, congestion control) is ns-3's own.
#include <algorithm>
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>
#include <ns3/traffic-control-module.h>

using namespace ns3;

namespace {

constexpr uint32_t LEAVES = 12, SPINES = 4, PER_LEAF = 8, HOSTS = LEAVES * PER_LEAF;
constexpr uint16_t PORT = 5000;
constexpr uint32_t FOREGROUND_BYTES = 8192;
/// Foreground flows have this share of the background's bytes.
constexpr double FOREGROUND_SHARE = 0.05;

uint32_t g_intervals;
uint64_t g_dropped;

/// A TCP socket whose receiver keeps at most `g_intervals` out-of-order intervals.
class BoundedSocket : public TcpSocketBase {
public:
    static TypeId GetTypeId() {
        static TypeId tid = TypeId("BoundedSocket").SetParent<TcpSocketBase>().AddConstructor<BoundedSocket>();
        return tid;
    }

protected:
    Ptr<TcpSocketBase> Fork() override { return CopyObject<BoundedSocket>(this); }

    void ReceivedData(Ptr<Packet> packet, const TcpHeader& header) override {
        const SequenceNumber32 begin = header.GetSequenceNumber(), next = m_tcb->m_rxBuffer->NextRxSequence();
        if (begin > next && !Keep(begin, begin + packet->GetSize())) {
            g_dropped++;
            SendEmptyPacket(TcpHeader::ACK);
            return;
        }
        TcpSocketBase::ReceivedData(packet, header);
        const SequenceNumber32 now = m_tcb->m_rxBuffer->NextRxSequence();
        auto is_in_order = [now](const auto& it) { return it.second <= now; };
        m_ahead.erase(std::remove_if(m_ahead.begin(), m_ahead.end(), is_in_order), m_ahead.end());
    }

private:
    /// Adds [begin, end) to the intervals, unless that takes one more than may be kept.
    bool Keep(SequenceNumber32 begin, SequenceNumber32 end) {
        auto touches = [&](const auto& it) { return it.first <= end && it.second >= begin; };
        if (std::none_of(m_ahead.begin(), m_ahead.end(), touches)) {
            if (m_ahead.size() >= g_intervals) {
                return false;
            }
            m_ahead.emplace_back(begin, end);
            return true;
        }
        for (const auto& it : m_ahead) {
            if (touches(it)) {
                begin = std::min(begin, it.first);
                end = std::max(end, it.second);
            }
        }
        m_ahead.erase(std::remove_if(m_ahead.begin(), m_ahead.end(), touches), m_ahead.end());
        m_ahead.emplace_back(begin, end);
        return true;
    }

    std::vector<std::pair<SequenceNumber32, SequenceNumber32>> m_ahead;
};

/// Routes by arithmetic: host h is 10.0.0.0 + h + 1, on leaf h / 8; a flow's spine comes from a hash of its four-tuple.
/// Interfaces of a leaf: its hosts, then the spines; of a spine: the leaves. Interface 0 is the loopback.
class LeafSpineRouting : public Ipv4RoutingProtocol {
public:
    enum Role { HOST, LEAF, SPINE };
    LeafSpineRouting(Role role, uint32_t index) : m_role(role), m_index(index) {}

    Ptr<Ipv4Route> RouteOutput(Ptr<Packet> packet, const Ipv4Header& header, Ptr<NetDevice>,
                               Socket::SocketErrno& error) override {
        error = Socket::ERROR_NOTERROR;
        return Route(packet, header.GetDestination());
    }

    bool RouteInput(Ptr<const Packet> packet, const Ipv4Header& header, Ptr<const NetDevice> device,
                    UnicastForwardCallback forward, MulticastForwardCallback, LocalDeliverCallback local,
                    ErrorCallback) override {
        const uint32_t interface = m_ipv4->GetInterfaceForDevice(device);
        if (m_role == HOST) {
            local(packet, header, interface);
        } else {
            m_source = header.GetSource();
            forward(Route(packet, header.GetDestination()), packet, header);
        }
        return true;
    }

    void NotifyInterfaceUp(uint32_t) override {}
    void NotifyInterfaceDown(uint32_t) override {}
    void NotifyAddAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void NotifyRemoveAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void SetIpv4(Ptr<Ipv4> ipv4) override { m_ipv4 = ipv4; }
    void PrintRoutingTable(Ptr<OutputStreamWrapper>, Time::Unit) const override {}

private:
    Ptr<Ipv4Route> Route(Ptr<const Packet> packet, Ipv4Address to) {
        const uint32_t host = to.Get() - Ipv4Address("10.0.0.1").Get();
        uint32_t out = 1;
        if (m_role == LEAF) {
            out += host / PER_LEAF == m_index ? host % PER_LEAF : PER_LEAF + Spine(packet, to);
        } else if (m_role == SPINE) {
            out += host / PER_LEAF;
        }
        Ptr<Ipv4Route> route = Create<Ipv4Route>();
        route->SetDestination(to);
        route->SetGateway(to);
        route->SetSource(m_ipv4->GetAddress(1, 0).GetLocal());
        route->SetOutputDevice(m_ipv4->GetNetDevice(out));
        return route;
    }

    uint32_t Spine(Ptr<const Packet> packet, Ipv4Address to) const {
        TcpHeader tcp;
        packet->PeekHeader(tcp);
        const uint32_t ports = uint32_t(tcp.GetSourcePort()) << 16 | tcp.GetDestinationPort();
        const uint32_t words[3] = {m_source.Get(), to.Get(), ports};
        return Hash32(reinterpret_cast<const char*>(words), sizeof words) % SPINES;
    }

    Role m_role;
    uint32_t m_index;
    Ptr<Ipv4> m_ipv4;
    Ipv4Address m_source;
};

struct Flow {
    Time since;
    uint32_t bytes, received;
    bool foreground;
};

std::map<std::pair<uint32_t, uint16_t>, Flow> g_flows;
std::vector<double> g_times[2];
NodeContainer g_hosts;
std::string g_congestion;
Ptr<UniformRandomVariable> g_random;

Ptr<BoundedSocket> MakeSocket(Ptr<Node> node) {
    Ptr<BoundedSocket> socket = CreateObject<BoundedSocket>();
    socket->SetNode(node);
    socket->SetTcp(node->GetObject<TcpL4Protocol>());
    socket->SetRtt(CreateObject<RttMeanDeviation>());
    ObjectFactory factory(g_congestion);
    socket->SetCongestionControlAlgorithm(factory.Create<TcpCongestionOps>());
    socket->SetRecoveryAlgorithm(CreateObject<TcpPrrRecovery>());
    return socket;
}

void Receive(std::pair<uint32_t, uint16_t> peer, Ptr<Socket> socket) {
    auto flow = g_flows.find(peer);
    while (Ptr<Packet> packet = socket->Recv()) {
        if (packet->GetSize() == 0) {
            break;
        }
        if (flow == g_flows.end()) {
            continue;
        }
        flow->second.received += packet->GetSize();
        if (flow->second.received == flow->second.bytes) {
            g_times[flow->second.foreground].push_back((Simulator::Now() - flow->second.since).GetSeconds() * 1e3);
            g_flows.erase(flow);
            flow = g_flows.end();
        }
    }
}

void Accepted(Ptr<Socket> socket, const Address& from) {
    const auto peer = InetSocketAddress::ConvertFrom(from);
    socket->SetRecvCallback(MakeBoundCallback(&Receive, std::make_pair(peer.GetIpv4().Get(), peer.GetPort())));
    socket->SetCloseCallbacks(MakeCallback(&Socket::Close, socket), MakeCallback(&Socket::Close, socket));
}

/// As much as there is room for; the connection closes behind the last byte.
void Fill(std::shared_ptr<uint32_t> left, Ptr<Socket> socket, uint32_t) {
    while (*left > 0) {
        const uint32_t size = std::min({*left, socket->GetTxAvailable(), uint32_t(1 << 16)});
        const int sent = size > 0 ? socket->Send(Create<Packet>(size)) : 0;
        if (sent <= 0) {
            return;
        }
        *left -= sent;
    }
    socket->SetSendCallback(MakeNullCallback<void, Ptr<Socket>, uint32_t>());
    socket->Close();
}

void Start(uint32_t from, uint32_t to, uint32_t bytes, bool foreground) {
    Ptr<BoundedSocket> socket = MakeSocket(g_hosts.Get(from));
    socket->Bind();
    Address own;
    socket->GetSockName(own);
    const uint32_t address = Ipv4Address("10.0.0.1").Get() + from;
    g_flows[{address, InetSocketAddress::ConvertFrom(own).GetPort()}] = {Simulator::Now(), bytes, 0, foreground};
    auto left = std::make_shared<uint32_t>(bytes);
    socket->SetSendCallback(MakeBoundCallback(&Fill, left));
    socket->SetConnectCallback(Callback<void, Ptr<Socket>>([left](Ptr<Socket> it) { Fill(left, it, 0); }),
                               MakeNullCallback<void, Ptr<Socket>>());
    socket->Connect(InetSocketAddress(Ipv4Address(Ipv4Address("10.0.0.1").Get() + to), PORT));
}

uint32_t Host() { return g_random->GetInteger(0, HOSTS - 1); }

uint32_t Other(uint32_t than) {
    const uint32_t host = g_random->GetInteger(0, HOSTS - 2);
    return host < than ? host : host + 1;
}

/// Sizes of background flows: the web search workload (Alizadeh et al., SIGCOMM '10 and '13), bytes and shares.
const std::pair<double, double> WEB_SEARCH[] = {{6e3, 0},      {10e3, 0.15}, {13e3, 0.2},  {19e3, 0.3}, {33e3, 0.4},
                                                {53e3, 0.53},  {133e3, 0.6}, {667e3, 0.7}, {1.3e6, 0.8}, {3.3e6, 0.9},
                                                {6.7e6, 0.97}, {20e6, 1}};

double MeanSize() {
    double mean = 0;
    for (size_t at = 1; at < std::size(WEB_SEARCH); at++) {
        const double share = WEB_SEARCH[at].second - WEB_SEARCH[at - 1].second;
        mean += share * (WEB_SEARCH[at].first + WEB_SEARCH[at - 1].first) / 2;
    }
    return mean;
}

uint32_t BackgroundSize() {
    const double share = g_random->GetValue(0, 1);
    size_t at = 1;
    while (at + 1 < std::size(WEB_SEARCH) && WEB_SEARCH[at].second < share) {
        at++;
    }
    const auto [low, below] = WEB_SEARCH[at - 1];
    const auto [high, above] = WEB_SEARCH[at];
    return uint32_t(low + (high - low) * (share - below) / (above - below));
}

/// Calls `what` at random times, `rate` times a second in the mean, until `end`.
void Poisson(double rate, Time end, std::function<void()> what) {
    const Time next = Seconds(-std::log(1 - g_random->GetValue(0, 1)) / rate);
    if (Simulator::Now() + next >= end) {
        return;
    }
    Simulator::Schedule(next, [=] {
        what();
        Poisson(rate, end, what);
    });
}

void Topology(const std::string& rate, const std::string& delay, uint32_t buffer, bool ecn) {
    NodeContainer leaves, spines;
    g_hosts.Create(HOSTS);
    leaves.Create(LEAVES);
    spines.Create(SPINES);
    auto install = [](NodeContainer nodes, LeafSpineRouting::Role role) {
        for (uint32_t index = 0; index < nodes.GetN(); index++) {
            Ptr<Node> node = nodes.Get(index);
            InternetStackHelper().Install(node);
            node->GetObject<Ipv4>()->SetRoutingProtocol(CreateObject<LeafSpineRouting>(role, index));
        }
    };
    install(g_hosts, LeafSpineRouting::HOST);
    install(leaves, LeafSpineRouting::LEAF);
    install(spines, LeafSpineRouting::SPINE);
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue(rate));
    link.SetChannelAttribute("Delay", StringValue(delay));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));
    TrafficControlHelper queue;
    const QueueSize size(QueueSizeUnit::PACKETS, buffer);
    if (ecn) {
        queue.SetRootQueueDisc("ns3::RedQueueDisc", "MaxSize", QueueSizeValue(size));
    } else {
        queue.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", QueueSizeValue(size));
    }
    // Addresses of hosts count from 10.0.0.1; those of switches are never used.
    uint32_t unused = Ipv4Address("10.1.0.1").Get();
    auto address = [&unused](Ptr<NetDevice> device, uint32_t fixed) {
        Ptr<Ipv4> ipv4 = device->GetNode()->GetObject<Ipv4>();
        const uint32_t interface = ipv4->AddInterface(device);
        ipv4->AddAddress(interface, Ipv4InterfaceAddress(Ipv4Address(fixed ? fixed : unused++), Ipv4Mask("/32")));
        ipv4->SetUp(interface);
    };
    auto connect = [&](Ptr<Node> low, Ptr<Node> high, uint32_t fixed) {
        NetDeviceContainer devices = link.Install(low, high);
        queue.Install(devices);
        address(devices.Get(0), fixed);
        address(devices.Get(1), 0);
    };
    for (uint32_t host = 0; host < HOSTS; host++) {
        connect(g_hosts.Get(host), leaves.Get(host / PER_LEAF), Ipv4Address("10.0.0.1").Get() + host);
    }
    for (uint32_t leaf = 0; leaf < LEAVES; leaf++) {
        for (uint32_t spine = 0; spine < SPINES; spine++) {
            connect(leaves.Get(leaf), spines.Get(spine), 0);
        }
    }
}

void Defaults(bool ecn, uint32_t threshold, const std::string& timeout) {
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", StringValue("500us"));
    // ns-3's defaults (1 s and 3 s) are for wide-area networks.
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", StringValue(timeout));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", StringValue(timeout));
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", StringValue("10us"));
    Config::SetDefault("ns3::RttEstimator::InitialEstimation", StringValue("200us"));
    if (ecn) {
        Config::SetDefault("ns3::TcpSocketBase::UseEcn", StringValue("On"));
        Config::SetDefault("ns3::RedQueueDisc::UseEcn", BooleanValue(true));
        Config::SetDefault("ns3::RedQueueDisc::UseHardDrop", BooleanValue(false));
        Config::SetDefault("ns3::RedQueueDisc::MeanPktSize", UintegerValue(1500));
        Config::SetDefault("ns3::RedQueueDisc::QW", DoubleValue(1));
        Config::SetDefault("ns3::RedQueueDisc::MinTh", DoubleValue(threshold));
        Config::SetDefault("ns3::RedQueueDisc::MaxTh", DoubleValue(threshold));
    }
}

double Percentile(std::vector<double>& times, double share) {
    if (times.empty()) {
        return std::nan("");
    }
    std::sort(times.begin(), times.end());
    return times[std::min(times.size() - 1, size_t(share * times.size()))];
}

} // namespace

int main(int argc, char** argv) {
    std::string congestion = "NewReno", rate = "10Gbps", delay = "10us", timeout = "4ms";
    uint32_t intervals = 1, buffer = 200, threshold = 65, fan = HOSTS - 1, seed = 1;
    double load = 0.4, seconds = 0.1;
    CommandLine cmd(__FILE__);
    cmd.AddValue("congestion", "NewReno or Dctcp", congestion);
    cmd.AddValue("intervals", "out-of-order intervals that a receiver keeps", intervals);
    cmd.AddValue("rate", "of each link", rate);
    cmd.AddValue("delay", "of each link", delay);
    cmd.AddValue("timeout", "least retransmission timeout", timeout);
    cmd.AddValue("buffer", "packets of each port's queue", buffer);
    cmd.AddValue("threshold", "packets of a queue from which DCTCP's are marked", threshold);
    cmd.AddValue("fan", "hosts that answer a partition-aggregate request", fan);
    cmd.AddValue("load", "background bytes, as a share of the hosts' links", load);
    cmd.AddValue("seconds", "during which flows begin", seconds);
    cmd.AddValue("seed", "of the random numbers", seed);
    cmd.Parse(argc, argv);

    const bool ecn = congestion == "Dctcp";
    g_intervals = intervals;
    g_congestion = "ns3::Tcp" + congestion;
    RngSeedManager::SetSeed(seed);
    g_random = CreateObject<UniformRandomVariable>();
    Defaults(ecn, threshold, timeout);
    Topology(rate, delay, buffer, ecn);
    for (uint32_t host = 0; host < HOSTS; host++) {
        Ptr<BoundedSocket> listener = MakeSocket(g_hosts.Get(host));
        listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), PORT));
        listener->Listen();
        listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(), MakeCallback(&Accepted));
    }
    const Time end = Seconds(seconds);
    const double bytes = HOSTS * load * DataRate(rate).GetBitRate() / 8;
    uint64_t begun[2] = {0, 0};
    Poisson(bytes / MeanSize(), end, [&] {
        const uint32_t from = Host();
        begun[0]++;
        Start(from, Other(from), BackgroundSize(), false);
    });
    Poisson(bytes * FOREGROUND_SHARE / (fan * FOREGROUND_BYTES), end, [&] {
        const uint32_t to = Host(), first = Host();
        for (uint32_t flow = 0; flow < fan; flow++) {
            begun[1]++;
            Start((to + 1 + (first + flow) % (HOSTS - 1)) % HOSTS, to, FOREGROUND_BYTES, true);
        }
    });
    // Flows that take twenty times as long count as unfinished.
    while (Simulator::Now() < end || (!g_flows.empty() && Simulator::Now() < end * 20)) {
        Simulator::Stop(MilliSeconds(10));
        Simulator::Run();
    }
    std::cout << congestion << '\t' << intervals << '\t' << seed;
    for (bool foreground : {true, false}) {
        auto& times = g_times[foreground];
        std::cout << '\t' << begun[foreground] << '\t' << begun[foreground] - times.size();
        std::cout << '\t' << Percentile(times, 0.9) << '\t' << Percentile(times, 0.999);
    }
    std::cout << '\t' << g_dropped << std::endl;
    return 0;
}
