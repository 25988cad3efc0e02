//! Calls: of helpers, some of which are so short that they are put in place, and of the program's own functions.
use super::{Body, own, plain};
use crate::helpers::{self, Name};
use crate::native::Run;
use crate::object::MapKind;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use cranelift_module::Module;
use std::mem::offset_of;

impl Body<'_, '_, '_> {
    pub(super) fn call_helper(&mut self, id: u32) {
        let Some(helper) = helpers::find(id) else { return };
        self.check_arguments();
        let result = match helper.name {
            Name::Time => self.field(offset_of!(Run, now)),
            Name::Processor => self.small_field(offset_of!(Run, replica)),
            Name::MapLookup => self.lookup(),
            name => self.call(name),
        };
        self.set(0, result);
    }

    fn check_arguments(&mut self) {
        for (index, argument) in self.compiler.facts.arguments[self.at].into_iter().enumerate() {
            let Some(argument) = argument.filter(|argument| !argument.access.proved) else { continue };
            let at = self.get(index as u8 + 1);
            let size = match argument.bytes {
                Some(bytes) => self.number(bytes.into()),
                None => self.get(index as u8 + 2),
            };
            self.check_region(argument.access.region, at, size);
        }
    }

    fn call(&mut self, name: Name) -> Value {
        let id = self.compiler.helpers[&name];
        let function = self.compiler.module.declare_func_in_func(id, self.b.func);
        let arguments = self.arguments();
        let call = self.b.ins().call(function, &arguments);
        self.b.inst_results(call)[0]
    }

    fn arguments(&mut self) -> [Value; 6] {
        [self.run, self.get(1), self.get(2), self.get(3), self.get(4), self.get(5)]
    }

    /// Values of an array are found by multiplying.
    fn lookup(&mut self) -> Value {
        let array = self.compiler.facts.maps[self.at]
            .map(|map| &self.compiler.shared.maps[map as usize])
            .filter(|map| matches!(map.definition.kind, MapKind::Array | MapKind::PerCpuArray));
        let Some(map) = array else { return self.call(Name::MapLookup) };
        let (start, entries) = (map.values.address() as i64, i64::from(map.definition.max_entries));
        let stride = i64::from(map.stride);
        let copy = (map.copies > 1).then(|| stride * i64::from(map.slots));
        let key = self.get(2);
        let index = self.b.ins().uload32(plain(), key, 0);
        let distance = self.b.ins().imul_imm(index, stride);
        let mut at = self.b.ins().iadd_imm(distance, start);
        if let Some(copy) = copy {
            let replica = self.b.ins().uload32(own(), self.run, offset_of!(Run, replica) as i32);
            let skip = self.b.ins().imul_imm(replica, copy);
            at = self.b.ins().iadd(at, skip);
        }
        let there = self.b.ins().icmp_imm(IntCC::UnsignedLessThan, index, entries);
        let null = self.number(0);
        self.b.ins().select(there, at, null)
    }

    pub(super) fn call_function(&mut self, target: usize) {
        let length = self.compiler.object.function(target).map_or(0, |function| function.end - function.start);
        self.charge(length);
        let id = self.compiler.functions[&target];
        let function = self.compiler.module.declare_func_in_func(id, self.b.func);
        let arguments = self.arguments();
        let call = self.b.ins().call(function, &arguments);
        let result = self.b.inst_results(call)[0];
        // Where the run was ended in there, it ends here too.
        let fault = self.small_field(offset_of!(Run, fault));
        let good = self.b.ins().icmp_imm(IntCC::Equal, fault, 0);
        let (next, bad) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(bad);
        self.b.ins().brif(good, next, &[], bad, &[]);
        self.b.switch_to_block(bad);
        let zero = self.number(0);
        self.b.ins().return_(&[zero]);
        self.b.switch_to_block(next);
        self.set(0, result);
    }
}
