//! Tests of Python itself, of Debian's libpython3.11-testsuite: those that use sockets.
use super::{Kind, Outcomes, Runner, Suite};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const MODULES: &[&str] = &[
    "test_socket",
    "test_ssl",
    "test_selectors",
    "test_select",
    "test_epoll",
    "test_poll",
    "test_socketserver",
    "test_timeout",
    "test_httplib",
    "test_httpservers",
    "test_ftplib",
    "test_poplib",
    "test_imaplib",
    "test_smtplib",
    "test_smtpd",
    "test_nntplib",
    "test_telnetlib",
    "test_asyncore",
    "test_asynchat",
    "test_xmlrpc",
    "test_docxmlrpc",
    "test_wsgiref",
    "test_urllib2_localnet",
    "test_robotparser",
    "test_pydoc",
    "test_syslog",
    "test_logging",
    "test_subprocess",
    "test_os",
    "test_posix",
    "test_fcntl",
    "test_pty",
    "test_resource",
    "test_faulthandler",
    "test_thread",
    "test_threadsignals",
    "test_popen",
    "test_wait3",
    "test_wait4",
    "test_io",
    "test_signal",
    "test_eintr",
    "test_fork1",
    "test_threading",
    "test_concurrent_futures",
    "test_asyncio",
    "test_multiprocessing_fork",
    "test_multiprocessing_forkserver",
    "test_multiprocessing_spawn",
];
/// Debian's, to which its package of tests belongs.
const PYTHON: &str = "/usr/bin/python3";
const FOLDER: &str = "/usr/lib/python3.11/test";

pub(super) fn suites() -> Vec<Suite> {
    MODULES.iter().map(|module| Suite { name: format!("python {module}"), kind: Kind::Python { module } }).collect()
}

/// Tests of a module.
pub(super) struct PythonTests {
    module: &'static str,
}

/// `None` where the tests are not installed.
pub(super) fn find(module: &'static str) -> Option<PythonTests> {
    let installed = [module.to_string() + ".py", module.to_string() + "/__init__.py"];
    installed.iter().any(|file| Path::new(FOLDER).join(file).exists()).then_some(PythonTests { module })
}

impl Runner for PythonTests {
    fn command(&self, mut command: Command, tests: &BTreeSet<String>) -> Command {
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/peers/suite.py"));
        // What a class or module failed to set up has no test's name.
        let names: BTreeSet<String> = tests.iter().filter(|test| !test.contains('(')).cloned().collect();
        match names.is_empty() {
            true => command.arg(format!("test.{}", self.module)),
            false => command.args(names),
        };
        command
    }

    fn program(&self) -> &str {
        PYTHON
    }

    fn outcomes(&self, output: &str) -> Outcomes {
        let lines = output.lines().filter_map(|line| line.split_once("SUITE "));
        let words = lines.filter_map(|(_, rest)| rest.split_once(' '));
        words.map(|(test, outcome)| (test.into(), outcome.into())).collect()
    }
}
