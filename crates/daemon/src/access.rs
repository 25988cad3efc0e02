//! Access rights: which users attach to which host, and which change the daemon. The sockets' own permissions come
//! first; this is for users who could open them.
use crate::config::HostSection;
use shm::handover;
use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;

/// Credentials of the process at the other end of a socket.
struct Caller {
    uid: u32,
    groups: Vec<u32>,
}

/// Users and groups by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Access {
    users: Vec<u32>,
    groups: Vec<u32>,
}

impl Access {
    /// Users who may attach to a host: those that it names, or all where it names none. The error is a sentence.
    pub(crate) fn to_host(section: &HostSection) -> Result<Access, String> {
        let users =
            section.users.iter().map(|name| number_of(name, "user", "/etc/passwd")).collect::<Result<_, _>>()?;
        let groups =
            section.groups.iter().map(|name| number_of(name, "group", "/etc/group")).collect::<Result<_, _>>()?;
        Ok(Access { users, groups })
    }

    /// Users who may change the daemon, besides its own user and root.
    pub(crate) fn to_manage(group: Option<&str>) -> Result<Access, String> {
        let group = group.map(group_number).transpose()?;
        Ok(Access { users: Vec::new(), groups: group.into_iter().collect() })
    }

    /// Whoever is at the other end of a socket may attach.
    pub(crate) fn may_attach(&self, socket: BorrowedFd<'_>) -> bool {
        let everybody = self.users.is_empty() && self.groups.is_empty();
        everybody || self.names(socket)
    }

    /// Whoever is at the other end of a socket may change the daemon.
    pub(crate) fn may_manage(&self, socket: BorrowedFd<'_>) -> bool {
        self.names(socket)
    }

    /// Root, the daemon's own user, or one of those named. A peer without credentials is refused.
    fn names(&self, socket: BorrowedFd<'_>) -> bool {
        let Some(caller) = caller(socket) else { return false };
        let own = rustix::process::geteuid().as_raw();
        caller.uid == 0
            || caller.uid == own
            || self.users.contains(&caller.uid)
            || self.groups.iter().any(|group| caller.groups.contains(group))
    }
}

/// A process is in the daemon's network namespace. One that `/proc` does not show is not.
///
/// Files below /proc/PID/net are the namespace's own, and their inode numbers are open to all; its link in /proc/PID/ns
/// is not, to a daemon that gave its capabilities up.
pub(crate) fn shares_network(pid: i32) -> bool {
    let inode = |process: &str| fs::metadata(format!("/proc/{process}/net/dev")).ok().map(|file| file.ino());
    pid > 0 && inode("self").is_some_and(|own| inode(&pid.to_string()) == Some(own))
}

fn caller(socket: BorrowedFd<'_>) -> Option<Caller> {
    let credentials = handover::credentials(socket).ok()?;
    let mut groups = handover::groups(socket).unwrap_or_default();
    groups.push(credentials.gid);
    Some(Caller { uid: credentials.uid, groups })
}

/// The number of a group that is given by name or number.
pub(crate) fn group_number(group: &str) -> Result<u32, String> {
    number_of(group, "group", "/etc/group")
}

/// In both tables the name comes first and the number third.
fn number_of(name: &str, what: &str, table: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let text = fs::read_to_string(table).map_err(|e| format!("cannot read {table}: {e}"))?;
    let found = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)).flatten()?.parse().ok()
    });
    found.ok_or_else(|| format!("no {what} is called `{name}` in {table}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn names_and_numbers_are_users_and_groups() {
        assert_eq!((number_of("root", "user", "/etc/passwd"), group_number("root")), (Ok(0), Ok(0)));
        assert_eq!(group_number("4711"), Ok(4711));
        assert!(group_number("no such group").unwrap_err().contains("`no such group`"));
    }

    #[test]
    fn a_process_of_another_network_is_distinguished() {
        assert!(shares_network(std::process::id() as i32));
        assert!(!shares_network(0) && !shares_network(i32::MAX));
        let elsewhere = std::process::Command::new("unshare").args(["-rn", "sleep", "60"]).spawn();
        let Ok(mut elsewhere) = elsewhere else { return println!("skipped: there is no unshare") };
        let pid = elsewhere.id() as i32;
        // It is in this one until it has called unshare.
        let begin = std::time::Instant::now();
        while shares_network(pid) && begin.elapsed().as_secs() < 10 && elsewhere.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let permitted = elsewhere.try_wait().unwrap().is_none();
        let shares = shares_network(pid);
        let _ = elsewhere.kill();
        elsewhere.wait().unwrap();
        assert!(!permitted || !shares);
    }

    #[test]
    fn the_daemons_own_user_may_always() {
        let (here, _there) = UnixStream::pair().unwrap();
        let others = Access { users: vec![4711], groups: vec![4712] };
        assert!(others.may_attach(here.as_fd()) && others.may_manage(here.as_fd()));
        assert!(Access::default().may_attach(here.as_fd()));
    }
}
