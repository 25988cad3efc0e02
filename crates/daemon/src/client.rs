//! Asking a running daemon.
use crate::protocol::{Answer, Question};
use crate::sockets::management_path;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Asks the daemon whose attach socket is at `socket` one question. The error is a sentence.
pub fn ask(socket: &Path, question: &Question) -> Result<Value, String> {
    open(socket, question).map(|(answer, _)| answer)
}

/// Completes the connections of an answer to [`Question::Ls`] or [`Question::Stats`], however many they are.
pub fn all_flows(socket: &Path, answer: &mut Value) -> Result<(), String> {
    for host in answer["hosts"].as_array_mut().into_iter().flatten() {
        let name = host["name"].as_str().unwrap_or_default().to_string();
        while let Some(from) = host["next"].as_u64() {
            let mut page = ask(socket, &Question::Flows { host: name.clone(), from })?;
            if let (Some(all), Some(more)) = (host["flows"].as_array_mut(), page["flows"].as_array_mut()) {
                all.append(more);
            }
            host["next"] = page["next"].take();
        }
        host.as_object_mut().map(|host| host.remove("next"));
    }
    Ok(())
}

/// As [`ask`], of a question that comes with bytes.
pub fn send(socket: &Path, question: &Question, bytes: &[u8]) -> Result<Value, String> {
    converse(socket, question, bytes).map(|(answer, _)| answer)
}

/// As [`ask`], of a question whose answer is more than one line: the rest is to be read from the connection.
pub fn open(socket: &Path, question: &Question) -> Result<(Value, BufReader<UnixStream>), String> {
    converse(socket, question, &[])
}

fn converse(socket: &Path, question: &Question, bytes: &[u8]) -> Result<(Value, BufReader<UnixStream>), String> {
    let path = management_path(socket);
    let stream = UnixStream::connect(&path).map_err(|e| absent(socket, &e))?;
    let lost = |e: std::io::Error| format!("the daemon at {} does not answer: {e}", socket.display());
    stream.set_read_timeout(Some(TIMEOUT)).map_err(lost)?;
    let mut line = serde_json::to_string(question).map_err(|e| e.to_string())?;
    line.push('\n');
    // A daemon that refuses the bytes answers without reading them.
    let written = (&stream).write_all(line.as_bytes()).and_then(|()| (&stream).write_all(bytes));
    let mut answer = String::new();
    let mut reader = BufReader::new(stream);
    let read = reader.read_line(&mut answer);
    if answer.is_empty() {
        written.map_err(lost)?;
    }
    read.map_err(lost)?;
    reader.get_ref().set_read_timeout(None).map_err(lost)?;
    match serde_json::from_str(&answer) {
        Ok(Answer::Ok(value)) => Ok((value, reader)),
        Ok(Answer::Error(sentence)) => Err(sentence),
        Err(_) => Err(format!("the daemon at {} answers in a language of another version", socket.display())),
    }
}

/// A daemon listens at `socket`.
pub fn is_running(socket: &Path) -> bool {
    UnixStream::connect(management_path(socket)).is_ok()
}

fn absent(socket: &Path, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            format!(
                "no permission for the daemon's socket {}: ask its owner or use sudo",
                management_path(socket).display()
            )
        }
        _ => format!("no daemon is running at {}: start one with toed --config FILE", socket.display()),
    }
}
