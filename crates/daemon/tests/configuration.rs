//! Wrong configurations: each is refused with file, line and what was probably meant.
use daemon::config::{EngineKind, PortKind, machine, parse};

const HOST: &str = "[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n";

fn refusal(text: &str) -> String {
    parse(text, "test.toml").expect_err("it must be refused")
}

#[test]
fn paths_of_packets_are_checked() {
    let host = |keys: &str| refusal(&format!("{HOST}{keys}"));
    let sentence = host("rdma_recovery = \"selective-repeat\"\nrdma_paths = 3\n");
    assert!(sentence.contains("`rdma_paths` must be 1, 2, 4, ... or 128, not 3"), "{sentence}");
    let sentence = host("rdma_paths = 16\n");
    assert!(sentence.contains("`rdma_paths` needs `rdma_recovery = \"selective-repeat\"`"), "{sentence}");
}

#[test]
fn ways_of_payload_are_three() {
    let sentence = refusal(&format!("{HOST}rdma_payload = \"copied\"\n"));
    assert!(sentence.contains("unknown value `copied`; known are auto, header-only, staged"), "{sentence}");
    for way in ["auto", "header-only", "staged"] {
        parse(&format!("{HOST}rdma_payload = \"{way}\"\n"), "test.toml").unwrap();
    }
}

#[test]
fn cores_are_for_threads_of_modules() {
    let cores = "cores = [0, 0]\n";
    let sentence = refusal(&format!("{HOST}{cores}"));
    assert!(sentence.contains("cores are those of its modules' threads, and it has none"), "{sentence}");
    let config = parse(&format!("{HOST}{cores}mapping = {{ threads = true }}\n"), "test.toml").unwrap();
    assert_eq!((config.hosts[0].cores.as_slice(), machine(&config)), ([0, 0].as_slice(), Ok(())));
    let config = parse(&format!("{HOST}cores = [1023]\nmapping = {{ threads = true }}\n"), "test.toml").unwrap();
    let sentence = machine(&config).unwrap_err();
    assert!(sentence.contains("host a: cores: core = 1023 cannot be used here"), "{sentence}");
}

#[test]
fn how_a_host_receives_is_for_flextoe() {
    let published = "tcp = { sack = false, delayed_acks = false, intervals = 1 }\n";
    let config = |engine: &str, keys: &str| parse(&format!("{HOST}engine = \"{engine}\"\n{keys}"), "test.toml");
    for engine in ["flextoe", "zeronic"] {
        let tcp = config(engine, published).unwrap().hosts[0].tcp;
        assert_eq!((tcp.sack, tcp.timestamps, tcp.delayed_acks, tcp.intervals), (false, true, false, 1));
    }
    let sentence = config("laminar", published).unwrap_err();
    assert!(sentence.contains("tcp.delayed_acks and tcp.intervals are choices of the flextoe engine"), "{sentence}");
    config("laminar", "tcp = { sack = false, timestamps = false }\n").unwrap();
    let sentence = config("flextoe", "tcp = { intervals = 33 }\n").unwrap_err();
    assert!(sentence.contains("intervals must be 32 at most"), "{sentence}");
}

#[test]
fn an_unknown_key_is_named_with_the_nearest_known_one() {
    assert_eq!(
        refusal("[[host]]\nname = \"a\"\nadress = \"10.0.0.1\"\n"),
        "test.toml:3: unknown key `adress`; did you mean `address`?"
    );
    assert_eq!(
        refusal("[[host]]\nname = \"a\"\nenigne = \"flextoe\"\n"),
        "test.toml:3: unknown key `enigne`; did you mean `engine`?"
    );
    assert_eq!(
        refusal(&format!("sockte = \"/x\"\n{HOST}")),
        "test.toml:1: unknown key `sockte`; did you mean `socket`?"
    );
    assert_eq!(refusal(&format!("[[hosts]]\n{HOST}")), "test.toml:1: unknown key `hosts`; did you mean `host`?");
    assert_eq!(
        refusal(&format!("{HOST}[[fabric]]\nname = \"lab\"\nlos = 0.1\n")),
        "test.toml:7: unknown key `los`; did you mean `loss`?"
    );
    let timers = format!("{HOST}[host.timers]\nmin_rto = 5\n");
    assert_eq!(refusal(&timers), "test.toml:6: unknown key `min_rto`; did you mean `min_rto_ms`?");
    for (key, value) in [("memory", "{ slots = 4 }"), ("engine", "\"laminar\"")] {
        let sentence = format!("test.toml:1: `{key}` belongs to a host: write it below its [[host]]");
        assert_eq!(refusal(&format!("{key} = {value}\n{HOST}")), sentence);
    }
}

#[test]
fn a_wrong_value_is_named_with_its_line() {
    assert_eq!(
        refusal(&format!("{HOST}port = {{ kind = \"fabrik\" }}\n")),
        "test.toml:5: `port`: unknown value `fabrik`; did you mean `fabric`?"
    );
    assert!(refusal(&format!("{HOST}engine = \"laminated\"\n")).starts_with("test.toml:5: `engine`: unknown value"));
    let address = refusal("[[host]]\nname = \"a\"\naddress = \"10.0.0\"\n");
    assert!(address.starts_with("test.toml:3: "));
    assert!(address.ends_with("in: address = \"10.0.0\""), "the key is in the sentence: {address}");
    assert!(refusal("[[host]]\nname = \n").starts_with("test.toml:2: "));
    assert!(refusal(&format!("log = \"loud\"\n{HOST}")).starts_with("test.toml:1: unknown value `loud`"));
    let values = refusal(&format!("log = \"verbose\"\n{HOST}"));
    assert!(values.starts_with("test.toml:1: unknown value `verbose`; known are error, warn, info, debug, trace"));
    assert!(!values.contains("fabric"), "keys are no values: {values}");
    assert_eq!(refusal("host = 5\n"), "test.toml:1: `host` is a list of sections: write [[host]]");
}

#[test]
fn parts_that_do_not_fit_together_are_refused() {
    assert!(refusal("").contains("no host is configured"));
    assert!(refusal("[[host]]\naddress = \"10.0.0.1\"\n").contains("has no `name`"));
    assert!(
        refusal("[[fabric]]\nnamed = \"f\"\n").starts_with("test.toml:2: unknown key `named`"),
        "not only: no `name`"
    );
    assert!(refusal(&format!("{HOST}{HOST}")).contains("two hosts are called `a`"));
    assert!(refusal(&format!("{HOST}{}", HOST.replace("\"a\"", "\"b\""))).contains("has the address 10.0.0.1"));
    assert!(
        refusal(&format!("{HOST}port = {{ kind = \"fabric\", fabric = \"x\" }}\n")).contains("no fabric is called `x`")
    );
    assert!(
        refusal(&format!("{HOST}port = {{ kind = \"fabric\", device = \"x\" }}\n")).contains("`device` means nothing")
    );
    assert!(refusal(&format!("{HOST}port = {{ kind = \"afxdp\" }}\n")).contains("needs `device`"));
    assert!(
        refusal(&format!("{HOST}port = {{ kind = \"tap\", kernel_address = \"10.0.0.1\" }}\n"))
            .contains("prefix length")
    );
    assert!(refusal(&format!("{HOST}port = {{ kind = \"tap\", mac = \"01:00:00:00:00:00\" }}\n")).contains("unicast"));
    assert!(refusal(&format!("{HOST}thread = 1\n")).contains("thread is 1"));
    assert!(refusal(&format!("{HOST}mapping = {{ dma = 99 }}\n")).contains("mapping: dma = 99"));
    for engine in ["laminar", "zeronic", "zeronic-laminar"] {
        let text = format!("{HOST}engine = \"{engine}\"\nmapping = {{ threads = true }}\n");
        assert!(refusal(&text).contains(&format!("engine {engine} has its modules on one thread")), "{engine}");
    }
    let below =
        "[[fabric]]\nname = \"f\"\n[[zeronic]]\nname = \"z\"\naddress = \"10.0.0.9\"\ntransport = \"zeronic\"\n";
    assert!(refusal(below).contains("there are flextoe, laminar, linux"), "a split decides on no headers");
    assert!(refusal(&format!("socket_mode = \"0999\"\n{HOST}")).contains("socket_mode"));
    assert!(refusal(&format!("{HOST}[host.memory]\nrx_bytes = 5000\n")).contains("powers of two"));
    assert!(refusal(&format!("{HOST}[host.memory]\nlong_path_bytes = 5000\n")).contains("long_path_bytes"));
    assert!(refusal(&format!("{HOST}[[fabric]]\nname = \"f\"\nloss = 2.0\n")).contains("`loss` is a probability"));
}

#[test]
fn a_zeronic_shares_the_address_of_a_host_that_can_be_shared() {
    let with = |keys: &str| format!("{HOST}thread = 1\n[[thread]]\n[[thread]]\n[[zeronic]]\n{keys}\n");
    let config = parse(&with("host = \"a\""), "test.toml").unwrap();
    let section = &config.zeronics[0];
    assert_eq!((section.name.as_str(), section.address.to_string().as_str()), ("a-zeronic", "10.0.0.1"));
    assert_eq!((section.prefix_len, section.thread), (24, 1), "the host's");
    assert_eq!(parse(&with("host = \"a\"\nname = \"z\""), "test.toml").unwrap().zeronics[0].name, "z");
    for (keys, why) in [
        ("host = \"b\"", "this zeronic shares host `b`, which is not there"),
        ("host = \"a\"\naddress = \"10.0.0.1\"", "whose `address` it has: leave `address` out"),
        ("host = \"a\"\nthread = 1", "whose `thread` it has: leave `thread` out"),
        ("host = \"a\"\nname = \"a\"", "each needs a name of its own"),
        ("host = \"a\"\n[[zeronic]]\nhost = \"a\"\nname = \"z\"", "another one shares host `a`"),
        ("host = \"a\"\ncolour = 1", "unknown key `colour`"),
        ("address = \"10.0.0.9\"", "this zeronic has no `name`"),
        ("name = \"z\"", "this zeronic has no `address`"),
        ("name = \"z\"\naddress = \"10.0.0.9\"", "it needs a fabric"),
    ] {
        let refused = refusal(&with(keys));
        assert!(refused.contains(why), "{keys}: {refused}");
    }
    let shared = "[[zeronic]]\nhost = \"a\"\n";
    for (keys, why) in [
        ("ephemeral_last = 61000\n", "ephemeral_last of host `a` is 61000: ports from 61000 on are the ZeroNIC host's"),
        (
            "[[host.port]]\nkind = \"fabric\"\n[[host.port]]\nkind = \"tap\"\naddress = \"10.7.0.2\"\n",
            "host `a` has 2 ports: only one port can be shared",
        ),
    ] {
        let refused = refusal(&format!("{HOST}{keys}{shared}"));
        assert!(refused.contains(why), "{keys}: {refused}");
    }
}

#[test]
fn a_host_has_one_port_or_a_list_of_them() {
    let two = format!(
        "[[fabric]]\nname = \"f\"\n{HOST}routes = [{{ network = \"10.9.0.0\", prefix_len = 16, port = 1 }}]\n\
         [[host.port]]\nkind = \"fabric\"\n[[host.port]]\nkind = \"tap\"\naddress = \"10.7.0.2\"\n"
    );
    let kinds =
        |text: &str| parse(text, "test.toml").unwrap().hosts[0].ports.iter().map(|port| port.kind).collect::<Vec<_>>();
    assert_eq!(kinds(&two), [PortKind::Fabric, PortKind::Tap]);
    assert_eq!(kinds(&format!("{HOST}port = {{ kind = \"tap\" }}\n")), [PortKind::Tap]);
    let refused = [
        ("port = [{ kind = \"tap\", address = \"10.7.0.2\" }]", "the first port has the host's own address"),
        ("port = []", "it has no port"),
        (
            "port = [{ kind = \"tap\" }, { kind = \"tap\", prefix_len = 8 }]",
            "port 1: it has a `prefix_len`, but no `address`",
        ),
        ("port = [{ kind = \"tap\" }, { kind = \"tap\", queue = 1 }]", "`queue` means nothing for a port of kind tap"),
        ("port = [{ kind = \"tap\" }, { kind = \"tpa\" }]", "unknown value `tpa`"),
        (
            "routes = [{ network = \"10.9.0.0\", prefix_len = 16, port = 1 }]",
            "names a port that is not there: there are 1",
        ),
        ("port = [{ kind = \"fabric\" }, { kind = \"fabric\" }]", "another member of its fabric has the address"),
    ];
    for (keys, sentence) in refused {
        let found = refusal(&format!("{HOST}{keys}\n"));
        assert!(found.contains(sentence), "{keys}: {found}");
    }
}

#[test]
fn keys_that_are_left_out_have_defaults() {
    let config = parse(HOST, "test.toml").unwrap();
    assert_eq!(config.hosts[0].engine, EngineKind::Flextoe);
    assert_eq!(config.hosts[0].ports[0].kind, PortKind::Fabric);
    assert_eq!(config.hosts[0].thread, 0);
    assert!(!config.hosts[0].mapping.threads);
    assert_eq!(config.service.mode(), Ok(0o660));
}

#[test]
fn the_full_sample_names_every_key_with_its_default() {
    let text = std::fs::read_to_string(samples().join("toed.toml")).unwrap();
    let stack = control::HostConfig { name: "toe".into(), ..Default::default() };
    assert_eq!(parse(&text, "toed.toml").unwrap().hosts[0].stack, stack);
    let keys = serde_json::to_value(&stack).unwrap();
    for (key, value) in keys.as_object().unwrap() {
        let inner = value.as_object().into_iter().flat_map(|inner| inner.keys());
        for key in inner.chain([key]) {
            assert!(text.contains(&format!("{key} = ")) || text.contains(&format!("[host.{key}]")), "{key} is missing");
        }
    }
}

fn samples() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config")
}

#[test]
fn the_samples_are_valid() {
    let mut count = 0;
    for entry in std::fs::read_dir(samples()).unwrap() {
        daemon::config::read(&entry.unwrap().path()).unwrap();
        count += 1;
    }
    assert!(count >= 4, "only {count} samples were found");
}

#[test]
fn addresses_that_cannot_work_are_refused() {
    let host = |keys: &str| format!("[[host]]\nname = \"a\"\n{keys}\n");
    let refused = [
        ("address = \"10.0.0.255\"", "10.0.0.255 is the broadcast address of 10.0.0.0/24"),
        ("address = \"10.0.0.0\"", "10.0.0.0 is the number of the network 10.0.0.0/24"),
        ("address = \"10.99.0.2\"\ngateway = \"10.1.2.3\"", "no port reaches the gateway 10.1.2.3"),
        (
            "address = \"10.0.0.2\"\nport = { kind = \"tap\", kernel_address = \"10.0.0.2/24\" }",
            "kernel_address is 10.0.0.2, the host's own address",
        ),
        (
            "address = \"10.0.0.2\"\nport = { kind = \"tap\", kernel_address = \"10.9.0.1/24\" }",
            "which is outside the host's network 10.0.0.0/24",
        ),
        (
            "address = \"10.0.0.2\"\nport = [{ kind = \"tap\" }, { kind = \"tap\", address = \"10.7.0.255\" }]",
            "10.7.0.255 is the broadcast address of 10.7.0.0/24",
        ),
        (
            "address = \"10.0.0.2\"\nipv6 = { address = \"2001:db8::2\", gateway = \"fe80::1\" }\n\
             port = { kind = \"afxdp\", device = \"eth1\" }",
            "give the port a `mac` of its own, or `exclusive = true`",
        ),
        ("port = { kind = \"tap\", exclusive = true }", "`exclusive` means nothing for a port of kind tap"),
        ("port = { kind = \"tap\", device = \"sixteen-letters0\" }", "the name of an interface has 1 to 15 characters"),
        (
            "address = \"10.0.0.2\"\n[[fabric]]\nname = \"lan\"\n[[fabric.uplink]]\nkind = \"tap\"\n\
             kernel_address = \"10.0.0.2/24\"",
            "fabric lan: uplink: the kernel's side is 10.0.0.2, which is a host's",
        ),
        ("engine = \"laminar\"\nmax_flows = 1000000", "max_flows is 1000000, and the laminar engine holds"),
        ("backend = \"rtl\"", "backend \"rtl\" runs P4 programs, and engine flextoe has none"),
        ("backend = { kind = \"native\", waveform = \"w.vcd\" }", "backend: only simulated RTL has a waveform"),
        ("backend = { kind = \"rtl\", wave = \"w.vcd\" }", "unknown key `wave`; did you mean `waveform`?"),
        ("backend = \"gates\"", "unknown value `gates`; known are native, rtl"),
        ("limits = { max_handshakes = 0 }", "limits: max_handshakes must be at least 1"),
    ];
    for (keys, sentence) in refused {
        let found = refusal(&host(keys));
        assert!(found.contains(sentence), "{keys}: {found}");
    }
    let routed = "address = \"10.0.0.2\"\ngateway = \"10.7.0.1\"\n\
                  port = [{ kind = \"tap\" }, { kind = \"tap\", address = \"10.7.0.2\" }]";
    assert!(parse(&host(routed), "test.toml").is_ok(), "a gateway behind the second port");
    assert!(parse(&host("address = \"10.0.0.0\"\nprefix_len = 31"), "test.toml").is_ok(), "RFC 3021");
}

#[test]
fn addresses_of_ipv6_that_cannot_work_are_refused() {
    let own = "address = \"10.0.0.2\"\nipv6 = { address = \"2001:db8::2\", gateway = \"fe80::1\" }\n";
    let host = |keys: &str| format!("[[host]]\nname = \"a\"\n{keys}\n");
    let tap = |kernel: &str| format!("port = {{ kind = \"tap\", kernel_address6 = \"{kernel}\" }}");
    let second = |ipv6: &str| format!("port = [{{ kind = \"tap\" }}, {{ kind = \"tap\", ipv6 = {{ {ipv6} }} }}]");
    let valid = [
        tap("2001:db8::1/64"),
        second("address = \"2001:db8:7::2\", prefix_len = 127"),
        format!(
            "{}\nroutes = [{{ network = \"2001:db8:9::\", prefix_len = 48, gateway = \"2001:db8::9\" }}]",
            tap("2001:db8::1/64")
        ),
    ];
    let engines = EngineKind::ALL.iter().map(|engine| format!("engine = \"{}\"\nmax_flows = 64", engine.name()));
    for keys in engines.chain(valid) {
        let found = parse(&host(&format!("{own}{keys}")), "test.toml");
        assert!(found.is_ok(), "{keys}: {:?}", found.err());
    }
    let auto = "address = \"10.0.0.2\"\nipv6 = { auto = true }\n";
    let nic = "port = { kind = \"afxdp\", device = \"eth1\", exclusive = true }";
    for keys in [tap("2001:db8::1/64"), nic.into()] {
        let found = parse(&host(&format!("{auto}{keys}")), "test.toml");
        assert!(found.is_ok(), "{keys}: {:?}", found.err());
    }
    let refused = [
        (format!("{auto}port = {{ kind = \"afxdp\", device = \"eth1\" }}"), "needs a first port that routers reach"),
        ("ipv6 = { auto = true, gateway = \"fe80::1\" }".into(), "takes address and gateway from a router"),
        (format!("{own}{}", tap("2001:db8::2/64")), "the host's own address"),
        (format!("{own}{}", tap("2001:db8:1::1/64")), "outside the host's network 2001:db8::/64"),
        (format!("{own}{}", tap("10.0.0.1/24")), "kernel_address6 is `10.0.0.1/24`"),
        (format!("address = \"10.0.0.2\"\n{}", tap("2001:db8::1/64")), "give it an `ipv6.address`"),
        (
            format!("{own}{}", second("address = \"2001:db8::2\", prefix_len = 129")),
            "prefix_len must be between 1 and 128",
        ),
        (format!("{own}{}", second("address = \"fe80::2\"")), "of global scope"),
        (format!("address = \"10.0.0.2\"\n{}", second("address = \"2001:db8::2\"")), "the host has none"),
        ("ipv6 = { address = \"2001:db8::\" }".into(), "2001:db8:: is the number of the network 2001:db8::/64"),
        (
            "ipv6 = { address = \"2001:db8::2\", gateway = \"2001:db9::1\" }".into(),
            "no port reaches the gateway 2001:db9::1",
        ),
        ("ipv6 = { adress = \"2001:db8::2\" }".into(), "adress"),
    ];
    for (keys, sentence) in refused {
        let found = refusal(&host(&keys));
        assert!(found.contains(sentence), "{keys}: {found}");
    }
    let twice = |name: &str, last: u8| {
        let ipv6 = "ipv6 = { address = \"2001:db8::2\" }";
        format!("[[host]]\nname = \"{name}\"\naddress = \"10.0.0.{last}\"\n{ipv6}\nport = {{ kind = \"fabric\" }}\n")
    };
    let both = format!("[[fabric]]\nname = \"f\"\n{}{}", twice("a", 1), twice("b", 2));
    assert!(refusal(&both).contains("another member of its fabric has the address 2001:db8::2"));
}

#[test]
fn what_the_machine_does_not_have_is_named_beforehand() {
    let missing = |text: &str| machine(&parse(text, "test.toml").unwrap()).expect_err("it is not there");
    assert_eq!(machine(&parse(HOST, "test.toml").unwrap()), Ok(()));
    let users = missing(&format!("{HOST}users = [\"no such user\"]\n"));
    assert_eq!(users, "host a: no user is called `no such user` in /etc/passwd");
    let module = missing(&format!("{HOST}module = [{{ file = \"/nowhere/x.o\" }}]\n"));
    assert!(module.starts_with("host a: module /nowhere/x.o: cannot be read: "), "{module}");
    let native = missing(&format!("{HOST}module = [{{ file = \"native:clasifier\" }}]\n"));
    assert!(native.contains("no native module is called `clasifier`"), "{native}");
    let core = missing(&format!("{HOST}[[thread]]\ncore = 1023\n"));
    assert!(core.starts_with("thread 0: core = 1023 cannot be used here"), "{core}");
}
