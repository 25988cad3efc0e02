//! A congestion policy of one file, in no table: a connection runs with it.
mod support;

use engine::stream::Stream;
use engine::{Engine, Limits};
use flextoe::{FlexToe, Mapping};
use support::sockets::Sockets;
use support::*;
use tcp::congestion::{CongestionName, Decision, Kind, Needs, Policy, Sample};

/// Two segments in flight, always.
static TWO_SEGMENTS: Kind = Kind {
    name: "two",
    code: 200,
    needs: Needs { window: true, ..Needs::NOTHING },
    new: |_mss, _now| Box::new(TwoSegments { acked: 0 }),
};

#[derive(Debug)]
struct TwoSegments {
    acked: u64,
}

impl Policy for TwoSegments {
    fn update(&mut self, sample: &Sample) -> Decision {
        self.acked += sample.acked;
        Decision { cwnd: 2 * sample.mss, rate: 0 }
    }

    fn ssthresh(&self) -> u32 {
        self.acked as u32
    }
}

#[test]
fn a_connection_runs_with_a_policy_of_its_own() {
    let sender = control::HostConfig { congestion: Some(CongestionName::of(&TWO_SEGMENTS)), ..config(0) };
    let mut net = Net::new(vec![sender, config(1)], |_, config| -> Box<dyn Engine<Stream>> {
        let limits = Limits { flows: config.max_flows, contexts: config.max_contexts };
        Box::new(FlexToe::new(limits, Mapping::default(), port::FramePool::new(64)))
    });
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    server.serve(&mut net, 80);
    let tag = client.connect(ip_of(1), 80, 0);
    net.run_for(10 * MS);
    let (first, second) = (client.connected(tag).unwrap().unwrap(), server.accepted().unwrap());
    let (mut ours, mut theirs) = (Sockets::default(), Sockets::default());
    let (first, second) = (ours.open(&client, first), theirs.open(&server, second));

    // The first round trip has the window of every policy; from then on it is the toy's.
    let bytes = vec![7; 400_000];
    let (mut written, mut received) = (0, 0);
    let mut largest = 0;
    net.run_until(60 * SECOND, |net| {
        written += ours.write(&mut client, first, &bytes[written..]);
        received += theirs.read(&mut server, second).len();
        let flow = net.nodes[0].host.base().flows().remove(0);
        assert_eq!(flow.congestion, Some("two"));
        if received > 100_000 {
            largest = largest.max(flow.cwnd);
        }
        received == bytes.len()
    });
    let flow = net.nodes[0].host.base().flows().remove(0);
    assert_eq!(largest, 2 * u32::from(flow.mss), "the engine has the toy's window");
    assert!(flow.ssthresh.is_some_and(|acked| acked > 100_000), "its state is the flow's: {:?}", flow.ssthresh);
    net.end_all(vec![client, server]);
}
