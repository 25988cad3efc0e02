//! State of the user interface: sorting, host, filter, and the keys that change them.
use super::picture::{FlowRow, Picture};
use crate::arguments::Sort;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Choices of the user.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub sort: Sort,
    pub reverse: bool,
    /// Only this host.
    pub host: Option<String>,
    /// Only connections in whose line this occurs.
    pub filter: String,
    /// The filter is being written.
    pub editing: bool,
    pub help: bool,
    pub paused: bool,
    /// The line that is explained, among those that are shown.
    pub selected: usize,
}

/// Effect of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Stay,
    Quit,
}

impl State {
    /// Takes a key.
    pub(super) fn key(&mut self, key: KeyEvent, picture: &Picture) -> Next {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c')) {
            return Next::Quit;
        }
        if self.editing {
            self.edit(key.code, control);
            return Next::Stay;
        }
        match key.code {
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Char('h') | KeyCode::Tab => self.next_host(picture),
            KeyCode::Char('/' | 'f') => self.editing = true,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('?') | KeyCode::F(1) => self.help = !self.help,
            KeyCode::Down | KeyCode::Char('j') => self.selected += 1,
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::PageDown => self.selected += 10,
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(10),
            KeyCode::Home | KeyCode::Char('g') => self.selected = 0,
            _ => {}
        }
        self.selected = self.selected.min(self.flows(picture).len().saturating_sub(1));
        Next::Stay
    }

    fn edit(&mut self, code: KeyCode, control: bool) {
        match code {
            KeyCode::Enter => self.editing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.editing = false;
            }
            KeyCode::Char('u') if control => self.filter.clear(),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) if !control && self.filter.chars().count() < 40 => self.filter.push(letter),
            _ => {}
        }
        self.selected = 0;
    }

    /// All hosts, then each on its own.
    fn next_host(&mut self, picture: &Picture) {
        let at = picture.hosts.iter().position(|host| Some(&host.name) == self.host.as_ref());
        let next = at.map_or(0, |at| at + 1);
        self.host = picture.hosts.get(next).map(|host| host.name.clone());
        self.selected = 0;
    }

    /// The host is shown.
    pub(super) fn shows(&self, host: &str) -> bool {
        self.host.as_ref().is_none_or(|only| only == host)
    }

    /// The connections that are shown, in their order.
    pub(super) fn flows<'a>(&self, picture: &'a Picture) -> Vec<&'a FlowRow> {
        let wanted = |row: &&FlowRow| self.shows(&row.host) && matches(row, &self.filter);
        let mut rows: Vec<&FlowRow> = picture.flows.iter().filter(wanted).collect();
        rows.sort_by(|a, b| {
            let by_choice = match self.sort {
                Sort::Rate => (b.rx_bits + b.tx_bits).total_cmp(&(a.rx_bits + a.tx_bits)),
                Sort::Rtt => b.rtt_us.cmp(&a.rtt_us),
                Sort::Retx => b.again.total_cmp(&a.again).then(b.again_total.cmp(&a.again_total)),
                Sort::Cwnd => b.cwnd.cmp(&a.cwnd),
                Sort::Flow => std::cmp::Ordering::Equal,
                Sort::Program => a.program.cmp(&b.program),
            };
            let by_name = || (&a.host, a.flow, &a.local, &a.remote).cmp(&(&b.host, b.flow, &b.local, &b.remote));
            let order = by_choice.then_with(by_name);
            if self.reverse { order.reverse() } else { order }
        });
        rows
    }
}

/// All words of the filter occur in what is shown of a connection.
fn matches(row: &FlowRow, filter: &str) -> bool {
    let number = row.flow.map(|flow| format!("flow={flow}")).unwrap_or_default();
    let fields = [&row.host, &row.local, &row.remote, &row.program, &row.state, &row.congestion, &number];
    let text = fields.map(|field| field.to_lowercase()).join(" ");
    filter.to_lowercase().split_whitespace().all(|word| text.contains(word) || row.limit == word)
}
