//! Checks of a configuration against the machine that it is for: users, groups, modules, cores. The start finds these
//! by using them; `toed --check` checks beforehand.
use super::{Config, HostSection};
use crate::access::Access;
use crate::modules;
use rustix::thread::sched_getaffinity;

/// A sentence about the first thing that is not there.
pub fn machine(config: &Config) -> Result<(), String> {
    Access::to_manage(config.service.manage_group.as_deref())?;
    config.service.socket_group.as_deref().map(crate::access::group_number).transpose()?;
    cores(config)?;
    config
        .hosts
        .iter()
        .try_for_each(|host| of_host(host).map_err(|sentence| format!("host {}: {sentence}", host.stack.name)))
}

/// The cores of the data-path threads, and of modules' threads, are there. The start asks for this, too: a thread that
/// cannot stay where it was put is slow, and nothing would show why.
pub fn cores(config: &Config) -> Result<(), String> {
    let wanted = config.service.thread.iter().enumerate().filter_map(|(at, thread)| Some((at, thread.core?)));
    wanted
        .into_iter()
        .try_for_each(|(at, core)| core_is_there(core).map_err(|sentence| format!("thread {at}: {sentence}")))?;
    let of_modules = config.hosts.iter().flat_map(|host| host.cores.iter().map(move |core| (host, *core)));
    of_modules.into_iter().try_for_each(|(host, core)| {
        core_is_there(core).map_err(|sentence| format!("host {}: cores: {sentence}", host.stack.name))
    })
}

fn of_host(host: &HostSection) -> Result<(), String> {
    Access::to_host(host)?;
    for section in &host.modules {
        modules::check(section, &host.stack)
            .map_err(|sentence| format!("module {}: {sentence}", section.file.display()))?;
    }
    Ok(())
}

fn core_is_there(core: usize) -> Result<(), String> {
    let cores = sched_getaffinity(None).map_err(|e| format!("the cores of this process cannot be read: {e}"))?;
    let there: Vec<String> =
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|at| cores.is_set(*at)).map(|at| at.to_string()).collect();
    if there.contains(&core.to_string()) {
        return Ok(());
    }
    Err(format!("core = {core} cannot be used here; this process may use {}", there.join(", ")))
}
