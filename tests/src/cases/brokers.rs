//! gRPC and RabbitMQ: runtimes whose threads sleep in different epoll sets, and wake each other.
use super::Bench;
use crate::report::Outcome;
use std::fs;

/// Debian's grpcio on both sides. A call that waits for a time-out takes 200 ms: so many take longer than the case may.
pub(super) fn grpc(bench: &Bench) -> Outcome {
    let _server = bench.python_server("grpc_calls.py", &["serve", &bench.port()])?;
    let printed = bench.python_client("grpc_calls.py", &["call", &bench.authority(), &bench.port()])?;
    Ok(printed.trim().into())
}

/// A node with folders, a name service (epmd) and a configuration of its own; the client is Debian's pika.
pub(super) fn rabbitmq(bench: &Bench) -> Outcome {
    let place = bench.session.dir().join(format!("rabbitmq-{}", bench.port));
    fs::create_dir_all(&place).map_err(|error| error.to_string())?;
    let path = |name: &str| place.join(name).display().to_string();
    let [names, distribution] = [(); 2].map(|()| bench.files.fresh_port());
    // The account `guest` is for the node's own machine unless the configuration allows others.
    let configuration = format!(
        "listeners.tcp.1 = 0.0.0.0:{}\nloopback_users = none\nlog.console = true\nlog.file = false\n\
         disk_free_limit.absolute = 1MB\n",
        bench.port
    );
    fs::write(path("node.conf"), configuration).map_err(|error| error.to_string())?;
    for empty in ["environment", "plugins"] {
        fs::write(path(empty), if empty == "plugins" { "[]." } else { "" }).map_err(|error| error.to_string())?;
    }
    let mut epmd = bench.lab.on_server("epmd");
    epmd.env("ERL_EPMD_PORT", names.to_string());
    let _epmd = bench.server_on(names, epmd, &["-relaxed_command_check"])?;
    let mut command = bench.lab.on_server("/usr/lib/rabbitmq/bin/rabbitmq-server");
    let variables = [
        ("HOME", path("")),
        ("ERL_EPMD_PORT", names.to_string()),
        ("RABBITMQ_NODENAME", format!("node{}@localhost", bench.port)),
        ("RABBITMQ_DIST_PORT", distribution.to_string()),
        ("RABBITMQ_CONF_ENV_FILE", path("environment")),
        ("RABBITMQ_CONFIG_FILE", path("node.conf")),
        ("RABBITMQ_ADVANCED_CONFIG_FILE", path("none.config")),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins")),
        ("RABBITMQ_GENERATED_CONFIG_DIR", path("generated")),
        ("RABBITMQ_MNESIA_BASE", path("data")),
        ("RABBITMQ_LOG_BASE", path("logs")),
        ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "+S 2:2 +sbwt none".into()),
    ];
    command.envs(variables);
    let mut node = bench.server(command, &[])?;
    let printed = bench.python_client("amqp.py", &[&bench.address(), &bench.port()])?;
    node.stop()?;
    fs::remove_dir_all(&place).map_err(|error| error.to_string())?;
    Ok(printed.trim().into())
}
