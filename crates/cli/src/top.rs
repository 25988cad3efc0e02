//! `opentoe top`: what happens on a running daemon, live.
mod columns;
mod draw;
mod picture;
mod sample;
mod state;
#[cfg(test)]
mod tests;

use crate::arguments::TopArguments;
use crate::locate;
use crate::table::{print_line, wrong_usage};
use daemon::protocol::no_host;
use draw::{Notes, draw};
use picture::Picture;
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::layout::Rect;
use sample::Sample;
use signal_hook::consts::{SIGINT, SIGTERM};
use state::{Next, State};
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a key may wait.
const TICK: Duration = Duration::from_millis(100);
/// Columns by default.
const COLUMNS: u16 = 120;
/// Lines of a single picture besides its connections, and at most.
const LINES: (usize, usize) = (40, 2000);

/// Shows it until somebody has seen enough.
pub(crate) fn top(arguments: &TopArguments) -> Result<(), String> {
    let socket = locate::daemon(arguments.daemon.socket.as_deref())?;
    let watch = Watch { socket, interval: Duration::from_secs_f64(arguments.interval) };
    let state = State {
        sort: arguments.sort,
        host: arguments.host.clone(),
        filter: arguments.filter.clone().unwrap_or_default(),
        ..State::default()
    };
    if arguments.json || arguments.once {
        return watch.print(arguments, &state);
    }
    if !io::stdout().is_terminal() {
        wrong_usage("standard output is no terminal: give --once for one picture as text, or --json");
    }
    let first = watch.sample(&state)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|e| format!("cannot receive signals: {e}"))?;
    }
    // It also restores the terminal where the program panics.
    let terminal = ratatui::try_init().map_err(|e| format!("this terminal cannot be used: {e}"))?;
    let done = watch.live(terminal, state, first, &stop);
    ratatui::restore();
    done
}

/// A daemon that is watched.
struct Watch {
    socket: PathBuf,
    interval: Duration,
}

impl Watch {
    /// Asks the daemon; the host that was asked for must be there.
    fn sample(&self, state: &State) -> Result<Sample, String> {
        let sample = sample::take(&self.socket)?;
        match &state.host {
            Some(name) if !sample.hosts.iter().any(|host| host.name == *name) => {
                let names: Vec<&str> = sample.hosts.iter().map(|host| host.name.as_str()).collect();
                Err(no_host(name, &names))
            }
            _ => Ok(sample),
        }
    }

    /// As text or JSON: one picture, or one after the other.
    fn print(&self, arguments: &TopArguments, state: &State) -> Result<(), String> {
        let mut before = self.sample(state)?;
        loop {
            sleep(self.interval);
            let now = self.sample(state)?;
            let mut picture = Picture::between(&before, &now);
            if arguments.json {
                picture.flows = state.flows(&picture).into_iter().cloned().collect();
                print_line(&serde_json::to_string(&picture).map_err(|e| e.to_string())?);
            } else {
                text(&picture, state, self.interval).iter().for_each(|line| print_line(line));
            }
            if arguments.once {
                return Ok(());
            }
            before = now;
        }
    }

    /// On the terminal.
    fn live(
        &self,
        mut terminal: DefaultTerminal,
        mut state: State,
        mut before: Sample,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let broken = |e: io::Error| format!("the terminal is gone: {e}");
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let mut picture = Picture::between(&before, &before);
        // The first rates come soon.
        let mut due = Instant::now() + self.interval.min(Duration::from_millis(300));
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now >= due {
                due = now + self.interval;
                if !state.paused {
                    let sample = sample::take(&self.socket).map_err(|why| format!("the daemon has gone: {why}"))?;
                    picture = Picture::between(&before, &sample);
                    before = sample;
                }
            }
            let notes = Notes { interval: self.interval.as_secs_f64(), colours, footer: "" };
            terminal.draw(|it| draw(it.area(), it.buffer_mut(), &picture, &state, &notes)).map_err(broken)?;
            let mut limit = due.saturating_duration_since(Instant::now()).min(TICK);
            while event::poll(limit).map_err(broken)? {
                match event::read().map_err(broken)? {
                    Event::Key(key) if key.kind == KeyEventKind::Release => {}
                    Event::Key(key) if state.key(key, &picture) == Next::Quit => return Ok(()),
                    _ => {}
                }
                // Those that came together are taken together.
                limit = Duration::ZERO;
            }
        }
        Ok(())
    }
}

/// A picture as lines of text, with all connections.
fn text(picture: &Picture, state: &State, interval: Duration) -> Vec<String> {
    let width = match io::stdout().is_terminal() {
        true => ratatui::crossterm::terminal::size().map_or(COLUMNS, |(columns, _)| columns),
        false => std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).unwrap_or(COLUMNS),
    };
    let height = (state.flows(picture).len() + LINES.0).min(LINES.1) as u16;
    let area = Rect::new(0, 0, width.max(draw::LEAST.0), height);
    let mut buffer = Buffer::empty(area);
    let notes = Notes { interval: interval.as_secs_f64(), colours: false, footer: " " };
    draw(area, &mut buffer, picture, state, &notes);
    lines_of(&buffer).into_iter().filter(|line| !line.is_empty()).collect()
}

/// The lines of a buffer without the blanks at their ends.
fn lines_of(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    let line = |y| (0..area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_string();
    (0..area.height).map(line).collect()
}
