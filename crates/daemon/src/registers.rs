//! Registers of running P4 programs: the state of an extension of one's own, by the names that it has in the source
//! (docs/P4.md).
use crate::build::HostPlace;
use crate::programs::only;
use crate::protocol::RegisterWish;
use crate::views::Observer;
use engine::{RegisterShape, Registers};
use serde_json::{Value, json};

/// Entries that are read between two rounds of the data-path.
const AT_ONCE: u32 = 4096;

/// Answers a question about the registers of a host's program. The error is a sentence.
pub(crate) fn answer(observer: &Observer, host: Option<&str>, wish: &RegisterWish) -> Result<Value, String> {
    let place = only(observer, host)?;
    let view = View { observer, place };
    let shapes = view.with(|registers| registers.shapes())?;
    match wish {
        RegisterWish::List => Ok(json!({ "host": place.config.stack.name, "registers": shapes })),
        RegisterWish::Get { name, index } => {
            let (number, shape) = view.find(&shapes, name)?;
            let entries = match index {
                Some(index) => vec![view.entry(number, inside(shape, *index)?)?],
                None => view.entries(number, shape.entries)?,
            };
            let cut = |(index, words): (u32, [u32; 2])| json!([index, words[..shape.words.len().min(2)]]);
            let entries: Vec<Value> = entries.into_iter().map(cut).collect();
            Ok(json!({ "host": place.config.stack.name, "register": shape, "entries": entries }))
        }
        RegisterWish::Set { name, index, words } => {
            let (number, shape) = view.find(&shapes, name)?;
            let index = inside(shape, *index)?;
            if words.len() != shape.words.len() {
                return Err(format!("an entry of {} has {} words, not {}", shape.name, shape.words.len(), words.len()));
            }
            for (word, (_, bits)) in words.iter().zip(&shape.words) {
                if u64::from(*word) >> bits > 0 {
                    return Err(format!("{word} does not fit into the {bits} bits of a word of {name}"));
                }
            }
            let words = [words[0], words.get(1).copied().unwrap_or(0)];
            view.with(move |registers| registers.write(number, index, words))?;
            Ok(Value::Null)
        }
    }
}

/// A host's program.
struct View<'o> {
    observer: &'o Observer,
    place: &'o HostPlace,
}

impl View<'_> {
    fn with<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut dyn Registers) -> T + Send + 'static,
    ) -> Result<T, String> {
        let (name, engine) = (&self.place.config.stack.name, self.place.config.engine.name());
        let none = || format!("host {name} runs the {engine} engine, which runs no P4 program");
        let result = self.observer.at(self.place, |seat| seat.host.base_mut().registers().map(read))?;
        result.ok_or_else(none)
    }

    fn find<'s>(&self, shapes: &'s [RegisterShape], name: &str) -> Result<(usize, &'s RegisterShape), String> {
        let wanted = name.to_string();
        let number = self.with(move |registers| registers.number(&wanted))?;
        number.and_then(|number| Some((number, shapes.get(number)?))).ok_or_else(|| {
            let names: Vec<&str> = shapes.iter().map(|shape| shape.name.as_str()).collect();
            format!("the program has no register `{name}`, or several; it has {}", names.join(", "))
        })
    }

    fn entry(&self, number: usize, index: u32) -> Result<(u32, [u32; 2]), String> {
        Ok((index, self.with(move |registers| registers.read(number, index))?))
    }

    /// Those that are not all zero. The data-path goes on between parts of a long register.
    fn entries(&self, number: usize, count: u32) -> Result<Vec<(u32, [u32; 2])>, String> {
        let mut found = Vec::new();
        for from in (0..count).step_by(AT_ONCE as usize) {
            let to = from.saturating_add(AT_ONCE).min(count);
            found.extend(self.with(move |registers| {
                let entries = (from..to).map(|index| (index, registers.read(number, index)));
                entries.filter(|(_, words)| *words != [0, 0]).collect::<Vec<_>>()
            })?);
        }
        Ok(found)
    }
}

fn inside(shape: &RegisterShape, index: u32) -> Result<u32, String> {
    let RegisterShape { name, entries, .. } = shape;
    if index < *entries { Ok(index) } else { Err(format!("{name} has {entries} entries, counted from 0: no {index}")) }
}
