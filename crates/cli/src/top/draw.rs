//! Drawing of one picture on a terminal's cells.
use super::columns::{Column, lines, pieces};
use super::picture::{FlowRow, Picture};
use super::state::State;
use crate::units::{count, duration, percent, short, time};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

/// Threads, hosts, and modules that are shown at most where there are few lines.
const FEW: [usize; 3] = [2, 3, 6];
/// The last and the least useful size.
pub(super) const LEAST: (u16, u16) = (60, 16);

/// What is shown besides the picture.
pub(super) struct Notes<'a> {
    /// Seconds between pictures.
    pub interval: f64,
    /// Colours may be used.
    pub colours: bool,
    /// Instead of the last line; empty for the keys.
    pub footer: &'a str,
}

/// A cursor down the lines of a buffer.
struct Page<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    line: u16,
    colours: bool,
}

impl Page<'_> {
    fn width(&self) -> usize {
        usize::from(self.area.width)
    }

    fn left(&self) -> usize {
        usize::from(self.area.height.saturating_sub(self.line))
    }

    fn print_line(&mut self, text: &str, style: Style) {
        self.print_at(0, text, style);
        self.line += 1;
    }

    /// On the present line, without going on to the next.
    fn print_at(&mut self, column: u16, text: &str, style: Style) {
        if self.line < self.area.height && column < self.area.width {
            let (x, y) = (self.area.x + column, self.area.y + self.line);
            self.buffer.set_stringn(x, y, text, usize::from(self.area.width - column), style);
        }
    }

    fn heading(&mut self, text: &str) {
        let style = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        self.print_line(text, style);
    }

    fn alarm(&self) -> Style {
        if self.colours { Style::new().fg(Color::Red) } else { Style::new() }
    }
}

/// Draws everything.
pub(super) fn draw(area: Rect, buffer: &mut Buffer, picture: &Picture, state: &State, notes: &Notes) {
    let mut page = Page { buffer, area, line: 0, colours: notes.colours };
    if (area.width, area.height) < (LEAST.0, 0) || area.height < LEAST.1 {
        let sentence = format!("opentoe top needs {} columns and {} lines", LEAST.0, LEAST.1);
        return page.print_line(&sentence, Style::new());
    }
    title(&mut page, picture, state, notes);
    if state.help {
        help(&mut page);
        page.line = area.height - 1;
        return page.print_line("? or Esc: back", Style::new());
    }
    // What is left to the connections grows with the terminal, and so does a part of the rest.
    let spare = usize::from(area.height).saturating_sub(24) / 4;
    for failure in picture.failures.iter().take(FEW[0]) {
        let alarm = page.alarm();
        page.print_line(failure, alarm);
    }
    threads(&mut page, picture, FEW[0] + spare);
    hosts(&mut page, picture, state, FEW[1] + spare);
    modules_and_drops(&mut page, picture, state, FEW[2] + spare);
    flows(&mut page, picture, state);
    page.line = area.height - 1;
    footer(&mut page, state, notes);
}

fn title(page: &mut Page, picture: &Picture, state: &State, notes: &Notes) {
    let seconds = if notes.interval == 1.0 { "second".into() } else { format!("{} s", notes.interval) };
    let text = pieces(
        [
            format!("toed {} (pid {})", picture.version, picture.pid),
            format!("up {}", duration(picture.uptime_s as u64)),
            if state.paused { "PAUSED".into() } else { format!("every {seconds}") },
            state.host.as_ref().map(|host| format!("host {host}")).unwrap_or_else(|| "all hosts".into()),
        ],
        page.width(),
    );
    let width = page.width();
    page.print_line(&format!("{text:<width$}"), Style::new().add_modifier(Modifier::REVERSED));
}

fn threads(page: &mut Page, picture: &Picture, most: usize) {
    let shown = shown(picture.threads.len(), most);
    for row in &picture.threads[..shown] {
        let text = pieces(
            [
                format!("thread {}", row.thread),
                format!("cpu {:>4}", percent(row.cpu)),
                row.system.map_or(String::new(), |system| format!("kernel {:>4}", percent(system))),
                format!("polling {:>4}", percent(row.polling)),
                format!("asleep {:>4}", percent(row.asleep)),
                format!("{:>4} rounds/s", short(row.rounds)),
                format!("{:>4} with work", percent(row.busy)),
            ],
            page.width(),
        );
        page.print_line(&text, Style::new());
    }
    more(page, picture.threads.len() - shown, "threads");
}

fn hosts(page: &mut Page, picture: &Picture, state: &State, most: usize) {
    let all: Vec<_> = picture.hosts.iter().filter(|host| state.shows(&host.name)).collect();
    let few = &all[..shown(all.len(), most)];
    let column = |cell: fn(&super::picture::HostRow) -> String| few.iter().map(|host| cell(host)).collect::<Vec<_>>();
    let columns = vec![
        Column::words("HOST", 0, column(|host| host.name.clone())),
        Column::words("ADDRESS", 3, column(|host| host.address.clone())),
        Column::words("ENGINE", 5, column(|host| host.engine.clone())),
        Column::numbers("FLOWS", 1, column(|host| count(host.flows as u64))),
        Column::numbers("TIME-WAIT", 6, column(|host| count(host.time_wait as u64))),
        Column::numbers("IN/s", 4, column(|host| short(host.rx_frames))),
        Column::numbers("bit/s", 2, column(|host| short(host.rx_bits))),
        Column::numbers("OUT/s", 4, column(|host| short(host.tx_frames))),
        Column::numbers("bit/s", 2, column(|host| short(host.tx_bits))),
        Column::numbers("DROPS/s", 2, column(|host| short(host.drops))),
    ];
    table(page, columns, |_| Style::new());
    more(page, all.len() - few.len(), "hosts");
}

/// Side by side: what the engines' modules do, and what is dropped.
fn modules_and_drops(page: &mut Page, picture: &Picture, state: &State, most: usize) {
    let modules = picture.modules_of(|host| state.shows(host));
    let drops = picture.drops_of(|host| state.shows(host));
    let few = &modules[..shown(modules.len(), most)];
    let column = |cell: fn(&super::picture::ModuleRow) -> String| few.iter().map(cell).collect::<Vec<_>>();
    let columns = vec![
        Column::words("MODULE", 0, column(|row| row.name.clone())),
        Column::numbers("WORKS/s", 1, column(|row| short(row.works))),
        Column::numbers(
            "BATCH",
            2,
            column(|row| if row.batches > 0.0 { short(row.works / row.batches) } else { "-".into() }),
        ),
        Column::numbers("LOAD", 4, column(|row| row.load.map_or("-".into(), percent))),
        Column::numbers("QUEUE", 3, column(|row| row.waiting.map_or("-".into(), count))),
    ];
    let (whole, alarm) = (page.area, page.alarm());
    // Room for the modules' widest usual table, and for the drops' narrowest.
    let half = (whole.width / 2 + 2).max(45).min(whole.width - 24);
    let start = page.line;
    page.area = Rect { width: half - 2, ..whole };
    table(page, columns, |_| Style::new());
    more(page, modules.len() - few.len(), "modules");
    let end = page.line;
    let room = usize::from(end - start).max(2) - 1;
    let few = &drops[..shown(drops.len(), room)];
    let columns = vec![
        Column::words("DROPPED", 0, few.iter().map(|row| row.reason.clone()).collect()),
        Column::numbers("/s", 1, few.iter().map(|row| short(row.rate)).collect()),
        Column::numbers("TOTAL", 2, few.iter().map(|row| count(row.total)).collect()),
    ];
    (page.line, page.area) = (start, Rect { x: whole.x + half, width: whole.width - half, ..whole });
    table(page, columns, |at| if few[at].rate > 0.0 { alarm } else { Style::new() });
    more(page, drops.len() - few.len(), "reasons");
    if drops.is_empty() {
        page.print_line("nothing so far", Style::new());
    }
    (page.line, page.area) = (end.max(page.line), whole);
}

fn flows(page: &mut Page, picture: &Picture, state: &State) {
    let all = state.flows(picture);
    // The heading, two lines about the selected one, and the last line.
    let room = page.left().saturating_sub(4).max(1);
    let selected = state.selected.min(all.len().saturating_sub(1));
    let first = (selected + 1).saturating_sub(room);
    let few = &all[first..all.len().min(first + room)];
    let (heading, rows) = lines(flow_columns(few), page.width());
    page.heading(&heading);
    for (at, row) in rows.iter().enumerate() {
        let mut style = if few[at].again > 0.0 { page.alarm() } else { Style::new() };
        if first + at == selected {
            style = style.add_modifier(Modifier::REVERSED);
        }
        let width = if first + at == selected { page.width() } else { 0 };
        page.print_line(&format!("{row:<width$}"), style);
    }
    match all.get(selected) {
        Some(flow) => {
            page.line = page.area.height.saturating_sub(3);
            details(flow).into_iter().for_each(|line| {
                let line = pieces(line, page.width());
                page.print_line(&line, Style::new().add_modifier(Modifier::DIM));
            });
        }
        None if state.filter.is_empty() => page.print_line("no connections", Style::new()),
        None => page.print_line("no connection matches the filter", Style::new()),
    }
}

fn flow_columns(rows: &[&FlowRow]) -> Vec<Column> {
    let column = |cell: fn(&FlowRow) -> String| rows.iter().map(|row| cell(row)).collect::<Vec<_>>();
    vec![
        Column::numbers("FLOW", 0, column(|row| row.flow.map_or("-".into(), |flow| flow.to_string()))),
        Column::words(
            "LOCAL",
            1,
            column(|row| format!("{}:{}", row.host, row.local.rsplit(':').next().unwrap_or("?"))),
        ),
        Column::words("REMOTE", 2, column(|row| row.remote.clone())),
        Column::words("PROGRAM", 8, column(|row| row.program.clone())),
        Column::words("STATE", 9, column(|row| short_state(&row.state))),
        Column::numbers("IN", 3, column(|row| short(row.rx_bits))),
        Column::numbers("OUT", 4, column(|row| short(row.tx_bits))),
        Column::numbers("RTT", 5, column(|row| time(row.rtt_us))),
        Column::numbers("CWND", 6, column(|row| count(row.cwnd))),
        Column::numbers("WND", 12, column(|row| count(row.window))),
        Column::numbers("RETX", 7, column(|row| count(row.again_total))),
        Column::numbers("/s", 13, column(|row| short(row.again))),
        Column::words("LIMIT", 11, column(|row| row.limit.into())),
        Column::words("CC", 10, column(|row| row.congestion.clone())),
        Column::words("PHASE", 14, column(|row| phase(row).into())),
    ]
}

/// Where a window-based policy is: below its threshold it doubles every round trip.
fn phase(row: &FlowRow) -> &'static str {
    match row.ssthresh {
        _ if row.congestion == "-" => "-",
        _ if row.rate > 0 => "paced",
        Some(threshold) if row.cwnd >= threshold => "avoidance",
        _ => "slow start",
    }
}

/// Two lines, in pieces, about one connection.
fn details(row: &FlowRow) -> [Vec<String>; 2] {
    let number = row.flow.map_or_else(|| "a connection".into(), |flow| format!("flow {flow}"));
    let process = row.pid.map(|pid| format!("{} (pid {pid})", row.program)).unwrap_or_default();
    let first = vec![
        format!("{number} of {}:", row.host),
        format!("{} to {}", row.local, row.remote),
        process,
        row.state.clone(),
    ];
    let threshold = row.ssthresh.map(|bytes| format!(", threshold {}", count(bytes))).unwrap_or_default();
    let rate = if row.rate > 0 { format!("at most {}bit/s", short(row.rate as f64 * 8.0)) } else { String::new() };
    let ecn = if row.ecn { "ecn".into() } else { String::new() };
    let last_drop = row.last_drop.as_ref().map(|reason| format!("{} drops, last {reason}", count(row.drops_total)));
    let second = vec![
        format!("{} {}{threshold}", row.congestion, phase(row)),
        rate,
        format!("in flight {}, unsent {}", count(row.outstanding), count(row.unsent)),
        format!("rtt ±{}, rto {}", time(row.rttvar_us), time(row.rto_us)),
        format!("fast retx {}", count(row.fast_total)),
        format!("out of order {}", count(row.out_of_order_total)),
        last_drop.unwrap_or_default(),
        ecn,
    ];
    [first, second]
}

/// RFC 9293's names in at most eight letters, as `ss` has them.
fn short_state(state: &str) -> String {
    match state {
        "ESTABLISHED" => "ESTAB",
        "SYN-RECEIVED" => "SYN-RCVD",
        "FIN-WAIT-1" => "FIN-W1",
        "FIN-WAIT-2" => "FIN-W2",
        "CLOSE-WAIT" => "CLOSE-W",
        "TIME-WAIT" => "TIME-W",
        other => other,
    }
    .into()
}

fn footer(page: &mut Page, state: &State, notes: &Notes) {
    let text = if state.editing {
        format!("filter: {}_   Enter keeps it, Esc clears it", state.filter)
    } else if !notes.footer.is_empty() {
        notes.footer.into()
    } else {
        let reverse = if state.reverse { " reversed" } else { "" };
        let filter = if state.filter.is_empty() { "/ filter".into() } else { format!("/ filter: {}", state.filter) };
        let keys = [
            "q quit".into(),
            format!("s sort: {}{reverse}", state.sort.name()),
            "h host".into(),
            filter,
            "p pause".into(),
            "? help".into(),
        ];
        pieces(keys, page.width())
    };
    page.print_line(&text, Style::new());
}

fn help(page: &mut Page) {
    page.print_line("", Style::new());
    for line in HELP.lines() {
        page.print_line(line, Style::new());
    }
}

/// Everything in at most 60 columns.
const HELP: &str = "\
q, Ctrl-C    end
s, r         sort by another column; reverse
h, Tab       next host, then all of them again
/, f         filter: words that must all occur in a line
up, down     choose the connection that is explained
p, space     pause
?            this page, and back

BATCH   works that a module takes at once, on average
LOAD    its share of a core, where it is measured
kernel  a thread's time in system calls: devices, doorbells
polling its time in rounds that found nothing to do
QUEUE   works that wait for it now
IN, OUT payload of a connection, bit/s
CWND    congestion window, bytes
WND     the peer's receive window, bytes
RETX    segments sent again, in total
LIMIT   what keeps it from sending more: app(lication),
        peer('s window), cwnd, rate, turn (of others), idle
PHASE   of its congestion control (CC)";

fn table(page: &mut Page, columns: Vec<Column>, style: impl Fn(usize) -> Style) {
    let (heading, rows) = lines(columns, page.width());
    page.heading(&heading);
    rows.iter().enumerate().for_each(|(at, row)| page.print_line(row, style(at)));
}

/// How many of `all` rows are shown in `room` lines: one line has how many are not.
fn shown(all: usize, room: usize) -> usize {
    if all <= room { all } else { room.saturating_sub(1) }
}

fn more(page: &mut Page, hidden: usize, what: &str) {
    if hidden > 0 {
        page.print_line(&format!("and {hidden} more {what}"), Style::new().add_modifier(Modifier::DIM));
    }
}
