//! curl, and Python's http.server.
use super::{Bench, LARGE, PYTHON, SMALL};
use crate::report::Outcome;

/// Status codes, a reused connection, parallel transfers, an upload that waits for 100-continue.
pub(super) fn curl(bench: &Bench) -> Outcome {
    let _server = bench.python_server("http_put.py", &[&bench.port(), bench.any()])?;
    let status = ["-sS", "-o", "/dev/null", "-w", "%{http_code} %{size_download} "];
    let reused = bench.client("curl", &[&status[..], &[&bench.url("[1-20]")]].concat())?;
    let wanted: String = (1..=20).map(|bytes| format!("200 {bytes} ")).collect();
    if reused != wanted {
        return Err(format!("twenty requests on one connection: {reused}"));
    }
    let missing = bench.client("curl", &[&status[..], &[&bench.url("nothing")]].concat())?;
    if missing != "404 12 " {
        return Err(format!("a missing page: {missing}"));
    }
    let parallel = ["-sS", "-Z", "--fail", &bench.url("[100000-100015]")];
    let length = bench.client("curl", &parallel)?.len();
    if length != (100_000..=100_015).sum::<usize>() {
        return Err(format!("sixteen transfers in parallel: {length} bytes"));
    }
    let upload = ["-sS", "--fail", "-H", "Expect: 100-continue", "-T", &bench.files.path(LARGE), &bench.url("put")];
    bench.files.expect(LARGE, &bench.client("curl", &upload)?)?;
    Ok("20 requests on a connection, 16 in parallel, 404, 100 MB up by SHA-256".into())
}

/// The module as everybody starts it: a directory served, HTTP/1.0, a connection for each request.
pub(super) fn module(bench: &Bench) -> Outcome {
    let (port, dir) = (bench.port(), bench.files.dir().display().to_string());
    let arguments = ["-m", "http.server", &port, "--bind", bench.any(), "--directory", &dir];
    let _server = bench.server(bench.lab.on_server(PYTHON), &arguments)?;
    let index = bench.client("curl", &["-sS", "--fail", &bench.url("")])?;
    if !index.contains(SMALL) {
        return Err("the directory's page does not name its files".into());
    }
    for name in [SMALL, LARGE] {
        let script = format!("curl -sS --fail {} | sha256sum", bench.url(name));
        bench.files.expect(name, &bench.client("sh", &["-c", &script])?)?;
    }
    let fetch = format!("for i in $(seq 50); do curl -sS --fail -o /dev/null {} || exit 1; done", bench.url(SMALL));
    bench.client("sh", &["-c", &fetch])?;
    Ok("directory, two files by SHA-256, 50 connections".into())
}
