//! Splicing as a row of thesis table 4.3: requests of 64 KiB through a proxy's host, which has a data-path thread to
//! itself. The proxy is out of the path (`xdp/splice.c`), or copies. Long requests, because the others' hosts and all
//! programs share one core: with short ones the proxy's host would wait for them.
use super::extension;
use super::observed::{Arguments, Figures, Part, SPLICE, TIMEOUT, finish, load, moment, note_errors, observe, pause};
use super::rpc::{self, Load};
use crate::lab::{FabricLab, FabricPlan, Lab};
use crate::report::{Report, Run, middle};
use crate::tools::Tools;
use port::FabricConfig;
use serde_json::{Value, json};

/// The second place of clients is the proxy's.
const PROXY: usize = 1;
const HOST: &str = "client1";
/// Bytes of a request and of its reply.
const REQUEST: u64 = 64 << 10;
const REPLY: u64 = 32;
/// Next to no loss makes every frame one real segment: otherwise the fabric forwards super-segments whole.
const ALMOST_NOTHING: f64 = 1e-12;
/// What starting, connecting and ending take at most, seconds.
const MARGIN: f64 = 1.0;

/// Measures both, in turn.
pub(super) fn measure(tools: &Tools, arguments: &Arguments, report: &mut Report) -> Result<(), String> {
    for round in 1..=arguments.common.pairs {
        let setups = if round % 2 == 1 { ["plain", "with"] } else { ["with", "plain"] };
        for setup in setups {
            let (run, printed) = through(tools, arguments, setup)?;
            tools.print_line(&format!(
                "splice, {setup}: {:.1} k/s, {:.2} M segments for each second of the proxy's thread at work",
                run.speed() / 1e3,
                per_second_of_work(&run) / 1e6
            ));
            report.runs.push(Run { round, ..run });
            note_errors(report, &printed)?;
        }
    }
    Ok(())
}

/// Echoes through the proxy.
fn through(tools: &Tools, arguments: &Arguments, setup: &str) -> Result<(Run, Vec<String>), String> {
    let moment = moment(&arguments.common).max(0.5);
    let network = FabricConfig { loss: ALMOST_NOTHING, ..FabricConfig::default() };
    let lab = FabricLab::new(tools, &FabricPlan { network, clients: 2, alone: Some(HOST), ..FabricPlan::default() })?;
    if setup == "with" {
        extension::load(tools, &lab, HOST, "splice")?;
    }
    let (here, port) = (lab.client_address(PROXY), rpc::PORT);
    let words = [here.to_string(), port.to_string(), lab.address().to_string(), port.to_string()];
    let words: Vec<String> = std::iter::once(tools.app("splice_proxy")).chain(words).collect();
    let _proxy = lab.proxy(PROXY, &words, port)?;
    let load = Load { to: Some(here), size: REQUEST, reply: REPLY, ..load(arguments, moment + MARGIN) };
    let (_servers, clients) = rpc::start(tools, &lab, &load)?;
    let wanted = (arguments.conns * REQUEST) as f64;
    tools.stop.until("the echoes", TIMEOUT, || Ok(Figures::read(&lab, HOST)?.bytes >= wanted))?;
    pause(tools, load.warm_up)?;
    let part = Part { lab: &lab, host: HOST, alone: true, request: REQUEST };
    let run = observe(tools, &part, moment, setup, &json!({ "extension": SPLICE }))?;
    let pairs = spliced(&lab.stats()?);
    let expected = if setup == "with" { arguments.conns } else { 0 };
    if pairs != expected {
        return Err(format!("{pairs} of {expected} connections were spliced"));
    }
    Ok((run, finish(tools, clients)?))
}

/// Pairs that the proxy's host has joined.
fn spliced(stats: &Value) -> u64 {
    let mut hosts = stats["hosts"].as_array().into_iter().flatten();
    hosts.find(|host| host["name"] == HOST).and_then(|host| host["modules"]["splice"]["made"].as_u64()).unwrap_or(0)
}

fn per_second_of_work(run: &Run) -> f64 {
    run.figure("segments_per_busy_s")
}

/// Segments that the proxy's host passes on, where that was measured.
pub(super) fn sentence(report: &Report) -> Option<String> {
    let point = json!({ "extension": SPLICE });
    let median = |setup: &str, figure: fn(&Run) -> f64| middle(report.on(setup, &point).map(figure).collect());
    let [with, plain] = ["with", "plain"].map(|setup| median(setup, per_second_of_work));
    let flowed = median("with", |run| run.figure("segments_per_s"))?;
    Some(format!(
        "splice: requests of 64 KiB; plain: the proxy copies. Spliced, its host passes {:.2} M\n\
         segments for each second that its thread works ({:.2} M a second came), copying {:.2} M;\n\
         thesis: 6.40 M",
        with? / 1e6,
        flowed / 1e6,
        plain? / 1e6
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Stack;

    #[test]
    fn splices_are_reported_in_segments_a_second_of_work() {
        let mut report = Report::new("extensions", json!({}));
        assert_eq!(sentence(&report), None);
        for (setup, rate) in [("plain", 5e5), ("with", 4e6), ("with", 5e6)] {
            let mut run = Run::new(Stack::Opentoe, 1, &json!({ "extension": SPLICE }));
            run.setup = setup.into();
            run.figures.insert("segments_per_busy_s".into(), json!(rate));
            run.figures.insert("segments_per_s".into(), json!(1e6));
            report.runs.push(run);
        }
        let text = sentence(&report).unwrap();
        assert!(text.contains("passes 4.50 M") && text.contains("(1.00 M a second came), copying 0.50 M"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn pairs_are_those_of_the_proxy() {
        let stats =
            json!({ "hosts": [{ "name": "server" }, { "name": HOST, "modules": { "splice": { "made": 3 } } }] });
        assert_eq!((spliced(&stats), spliced(&json!({}))), (3, 0));
    }
}
