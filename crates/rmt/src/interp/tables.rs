//! The interpreter's control API: tables, registers and counters by name.
use super::entries::values;
use super::machine::Machine;
use crate::control::{self, Addition, ControlError, EntryKey};
use crate::meter::Rates;

impl Machine {
    /// Adds an entry, or replaces that of the same keys. Of ternary entries that match, the one with the least
    /// `priority` wins; of prefixes, the longest.
    ///
    /// # Errors
    /// A name, keys or arguments that the program does not have; a full table; constant entries.
    pub fn table_add(
        &mut self,
        table: &str,
        keys: &[EntryKey],
        priority: u32,
        action: &str,
        args: &[u128],
    ) -> Result<(), ControlError> {
        let Addition { table: index, keys, priority, call } =
            control::addition(&self.program, table, keys, priority, action, args)?;
        let info = &self.program.tables[index];
        let state = &mut self.tables[index];
        let most = info.size as usize;
        let added = match &mut state.exact {
            Some(map) => {
                let keys = values(&keys);
                let room = map.len() < most || map.contains_key(&keys);
                if room {
                    map.insert(keys, call);
                }
                room
            }
            None => state.scanned.add(most, priority, keys, call),
        };
        if added { Ok(()) } else { Err(ControlError::Full(table.into())) }
    }

    /// Removes the entries of these keys; whether there was one.
    ///
    /// # Errors
    /// A name or keys that the program does not have; constant entries.
    pub fn table_remove(&mut self, table: &str, keys: &[EntryKey]) -> Result<bool, ControlError> {
        let (index, keys) = control::removal(&self.program, table, keys)?;
        let state = &mut self.tables[index];
        Ok(match &mut state.exact {
            Some(map) => map.remove(&values(&keys)).is_some(),
            None => state.scanned.remove(&keys),
        })
    }

    /// Sets what happens on a miss.
    ///
    /// # Errors
    /// A name or arguments that the program does not have; a constant default.
    pub fn table_set_default(&mut self, table: &str, action: &str, args: &[u128]) -> Result<(), ControlError> {
        let (index, call) = control::new_default(&self.program, table, action, args)?;
        self.tables[index].default = call;
        Ok(())
    }

    /// Entries now.
    ///
    /// # Errors
    /// A name that the program does not have.
    pub fn table_len(&self, table: &str) -> Result<usize, ControlError> {
        Ok(self.tables[control::table_index(&self.program, table)?].len())
    }

    /// The words of a register's entry.
    ///
    /// # Errors
    /// A name that the program does not have, or an index beyond the end.
    pub fn register_read(&self, name: &str, index: u32) -> Result<&[u128], ControlError> {
        let (register, range) = self.register_entry(name, index)?;
        Ok(&self.registers[register][range])
    }

    /// Sets the words of a register's entry.
    ///
    /// # Errors
    /// A name that the program does not have, an index beyond the end, other words than the entry has.
    pub fn register_write(&mut self, name: &str, index: u32, words: &[u128]) -> Result<(), ControlError> {
        let (register, range) = self.register_entry(name, index)?;
        control::check_words(&self.program, register, words)?;
        self.registers[register][range].copy_from_slice(words);
        Ok(())
    }

    fn register_entry(&self, name: &str, index: u32) -> Result<(usize, std::ops::Range<usize>), ControlError> {
        let register = control::register_index(&self.program, name, index)?;
        let words = self.program.registers[register].words.len();
        Ok((register, index as usize * words..(index as usize + 1) * words))
    }

    /// Sets a meter's rates; without any, it is green.
    ///
    /// # Errors
    /// A name that the program does not have, or an index beyond the end.
    pub fn meter_set(&mut self, name: &str, index: u32, rates: Option<Rates>) -> Result<(), ControlError> {
        let meter = control::by_name(name, self.program.meters.iter().map(|m| m.name.as_str()))?;
        let set = self.meters[meter].set(index, rates, self.now_ns);
        if set { Ok(()) } else { Err(ControlError::Index(index)) }
    }

    /// A counter's value: packets.
    ///
    /// # Errors
    /// A name that the program does not have, or an index beyond the end.
    pub fn counter_read(&self, name: &str, index: u32) -> Result<u64, ControlError> {
        let counter = control::by_name(name, self.program.counters.iter().map(|c| c.name.as_str()))?;
        self.counters[counter].get(index as usize).copied().ok_or(ControlError::Index(index))
    }
}
