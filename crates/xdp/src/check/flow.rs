//! The shape of a program: jumps go where they may, and nothing calls itself.
use crate::insn::Insn;
use crate::object::Object;

/// Checks the shape; returns at which instructions several ways meet.
pub(super) fn check(object: &Object) -> Result<Vec<bool>, String> {
    let code = &object.code;
    let mut meets = vec![false; code.len()];
    for function in &object.functions {
        for at in function.start..function.end {
            let refuse = |why: &str| Err(object.sentence(at, why));
            if let Some(target) = code[at].target() {
                if !(function.start..function.end).contains(&target) {
                    return refuse("jumps out of its function");
                }
                if code[target] == Insn::Second {
                    return refuse("jumps into the middle of a 64-bit constant");
                }
                meets[target] = true;
            }
            if let Insn::CallFunction { target } = code[at] {
                if !object.functions.iter().any(|function| function.start == target) {
                    return refuse("calls into the middle of a function");
                }
                // After a call, ways through the callee come together.
                if let Some(after) = meets.get_mut(at + 1) {
                    *after = true;
                }
            }
        }
        if !code[function.start..function.end].last().is_some_and(Insn::ends) {
            return Err(
                object.sentence(function.end - 1, "is the last one and does not return: control falls off the end")
            );
        }
    }
    unreachable_code(object)?;
    recursion(object)?;
    Ok(meets)
}

/// The kernel refuses it too: it is never there by intention.
fn unreachable_code(object: &Object) -> Result<(), String> {
    for function in &object.functions {
        let mut reached = vec![false; object.code.len()];
        let mut waiting = vec![function.start];
        while let Some(at) = waiting.pop() {
            if at >= function.end || std::mem::replace(&mut reached[at], true) {
                continue;
            }
            let insn = object.code[at];
            waiting.extend(insn.target());
            if !insn.ends() {
                waiting.push(at + 1);
            }
        }
        if let Some(at) = (function.start..function.end).find(|at| !reached[*at]) {
            return Err(object.sentence(at, "is never reached"));
        }
    }
    Ok(())
}

fn recursion(object: &Object) -> Result<(), String> {
    let index = |start: usize| object.functions.iter().position(|function| function.start == start);
    let calls = |function: usize| {
        let range = object.functions[function].start..object.functions[function].end;
        range.filter_map(|at| match object.code[at] {
            Insn::CallFunction { target } => index(target).map(|callee| (at, callee)),
            _ => None,
        })
    };
    // Functions from which everything that they call is known to come to an end.
    let mut good = vec![false; object.functions.len()];
    loop {
        let next = (0..good.len()).find(|one| !good[*one] && calls(*one).all(|(_, callee)| good[callee]));
        match next {
            Some(function) => good[function] = true,
            None => break,
        }
    }
    match (0..good.len()).find(|one| !good[*one]).and_then(|one| calls(one).find(|(_, callee)| !good[*callee])) {
        Some((at, callee)) => {
            let name = &object.functions[callee].name;
            Err(object.sentence(at, &format!("calls {name}, which in the end calls itself (recursion)")))
        }
        None => Ok(()),
    }
}
