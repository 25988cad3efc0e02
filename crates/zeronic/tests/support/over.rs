//! SocketEngine over each stream engine, for the harness that these have.
use crate::common::Config;
use engine::stream::Stream;
use engine::{Engine, FramePool, Limits};
use flextoe::FlexToe;
use laminar::{Extensions, Laminar};
use zeronic::SocketEngine;

fn split(config: &Config, name: &'static str, inner: Box<dyn Engine<Stream>>) -> Box<dyn Engine<Stream>> {
    let most = config.rx_bytes.max(config.tx_bytes).max(config.most);
    Box::new(SocketEngine::new(name, inner, most).expect("a few pages"))
}

pub(crate) fn over_flextoe(config: &Config, limits: Limits, pool: FramePool) -> Box<dyn Engine<Stream>> {
    split(config, "zeronic", Box::new(FlexToe::new(limits, config.mapping.clone(), pool)))
}

pub(crate) fn over_laminar(config: &Config, limits: Limits, _: FramePool) -> Box<dyn Engine<Stream>> {
    let extensions = Extensions { sack: config.sack, timely: config.timestamps, ..Extensions::default() };
    let laminar = Laminar::new(limits, config.wscale, extensions).expect("the limits are small");
    split(config, "zeronic-laminar", Box::new(laminar))
}
