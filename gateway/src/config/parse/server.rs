//! `server`: addresses, workers and limits; and from them and the tenants, who may ask.
//!
//! Opens nothing. Invariant: an address that others can reach comes with tenants or with the operator's explicit word.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use super::{
    super::{
        Access, Connections, ControlSocket, MAX_SOCKET_PATH, RequestMemory, Requests, Server, Tenant, Workers,
        ZeroCopy,
        field::{Address, Amount, At, AutoOr, Field, Read},
        node::quoted,
        raw, units,
    },
    Reader, ZERO_COPY,
};

/// Most addresses.
const MAX_LISTEN: usize = 64;

/// What the section is checked against.
pub(super) struct Others<'a> {
    /// Addresses of the command line.
    pub(super) listen: &'a [SocketAddr],
    /// Whether the file means to have tenants, good or bad.
    pub(super) has_tenants: bool,
    /// Whether there is a `/metrics`.
    pub(super) prometheus: bool,
}

/// An address, and where it was asked for: in the file, or else on the command line.
type Asked = (SocketAddr, Option<At<()>>);

impl Reader<'_> {
    /// The section, and who may ask.
    pub(super) fn server(&mut self, raw: raw::Server, others: &Others<'_>, tenants: Vec<Tenant>) -> (Server, Access) {
        let asked = self.listen(raw.listen, raw.port, others.listen);
        let admin = raw.admin.set();
        let admin = self.admin(admin, &asked, others);
        let access = self.access(raw.allow_anonymous, &asked, others, tenants);
        let connections = Connections {
            max: self.whole(raw.max_connections, 1..=1_000_000, 5_000) as usize,
            keepalive_timeout: self.duration(raw.keepalive_timeout, SECOND..=DAY, 30 * SECOND),
            max_age: self.duration(raw.max_connection_age, SECOND..=30 * DAY, HOUR),
            read_timeout: self.duration(raw.read_timeout, Duration::from_millis(100)..=HOUR, 10 * SECOND),
        };
        let requests = Requests {
            max_header_bytes: self.size(raw.max_header_bytes, 1 << 10..=1 << 20, 16 << 10) as usize,
            max_body_bytes: self.size(raw.max_body_bytes, 1 << 10..=1 << 30, 32 << 20) as usize,
            strict: raw.strict.given().is_some_and(|at| at.value),
        };
        let server = Server {
            listen: asked.into_iter().map(|(address, _)| address).collect(),
            admin,
            workers: self.workers(raw.workers),
            connections,
            requests,
            drain_timeout: self.duration(raw.drain_timeout, SECOND..=DAY, 600 * SECOND),
            memory: self.request_memory(raw.memory, &requests),
            zero_copy: self.word(raw.zero_copy, &ZERO_COPY, ZeroCopy::Auto),
            control: self.control(raw.control_socket),
        };
        (server, access)
    }

    fn listen(
        &mut self,
        listen: Field<Vec<At<Address>>>,
        port: Field<Option<i128>>,
        arguments: &[SocketAddr],
    ) -> Vec<Asked> {
        let port = port.set();
        if let (Some(port), Field::Given(_)) = (&port, &listen) {
            let text = "`port` and `listen` contradict each other: keep one of them";
            port.fault(&mut self.problems, text);
        }
        let asked: Vec<Asked> = match (listen.given(), port) {
            (Some(list), _) => self.addresses(&list),
            (None, Some(port)) => self.port(&port),
            (None, None) => vec![(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)), None)],
        };
        let asked = if arguments.is_empty() {
            asked
        } else {
            arguments.iter().map(|address| (*address, None)).collect()
        };
        self.no_address_twice(&asked);
        asked
    }

    fn addresses(&mut self, list: &At<Vec<At<Address>>>) -> Vec<Asked> {
        if list.value.is_empty() {
            let text = "the list holds no address: give one, such as [\"127.0.0.1:8080\"]";
            list.fault(&mut self.problems, text);
        }
        if list.value.len() > MAX_LISTEN {
            list.fault(&mut self.problems, format_args!("give at most {MAX_LISTEN} addresses"));
            return Vec::new();
        }
        let read = list.value.iter();
        read.filter_map(|given| Some((self.address(given)?, Some(given.with(())))))
            .collect()
    }

    fn port(&mut self, port: &At<i128>) -> Vec<Asked> {
        let Some(number) = self.in_range(port, port.value, 1..=u16::MAX, |n| n.to_string()) else {
            return Vec::new();
        };
        let all = [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)];
        all.map(|ip| (SocketAddr::new(ip, number), Some(port.with(()))))
            .to_vec()
    }

    fn address(&mut self, given: &At<Address>) -> Option<SocketAddr> {
        let text = given.value.0.as_str();
        let address = text.parse().ok();
        if address.is_none() {
            let text = match text.strip_prefix("localhost:") {
                Some(port) => format!(
                    "{} is a name: give the address, 127.0.0.1:{port} or [::1]:{port}",
                    quoted(text)
                ),
                None => format!("{} is not possible: give {}", quoted(text), Address::WANTED),
            };
            given.fault(&mut self.problems, text);
        }
        address
    }

    fn no_address_twice(&mut self, asked: &[Asked]) {
        for (index, (address, at)) in asked.iter().enumerate() {
            // Port 0 is another port each time.
            if address.port() == 0 || !asked[..index].iter().any(|(before, _)| before == address) {
                continue;
            }
            let text = format!("{address} is there twice: remove one");
            self.fault_of(at.as_ref(), text);
        }
    }

    fn admin(&mut self, given: Option<At<Address>>, asked: &[Asked], others: &Others<'_>) -> Option<SocketAddr> {
        let given = given?;
        let address = self.address(&given)?;
        let clash = asked.iter().map(|(listen, _)| *listen).find(|listen| {
            let both = listen.is_ipv4() == address.is_ipv4() && listen.port() == address.port() && address.port() != 0;
            both && (listen.ip() == address.ip() || listen.ip().is_unspecified() || address.ip().is_unspecified())
        });
        if let Some(listen) = clash {
            let text = format!("{address} collides with {listen} of server.listen: give another port");
            given.fault(&mut self.problems, text);
        }
        if !others.prometheus {
            let text = "there are no metrics to serve here, since metrics.prometheus.enabled is false: set that to \
                        true, or leave this key out";
            given.fault(&mut self.problems, text);
        }
        Some(address)
    }

    /// Who may ask: the rule that no address is open to others unless someone said so.
    fn access(&mut self, allow: Field<bool>, asked: &[Asked], others: &Others<'_>, tenants: Vec<Tenant>) -> Access {
        let bad = matches!(allow, Field::Bad);
        let allow = allow.given().filter(|at| at.value);
        if others.has_tenants {
            if let Some(allow) = &allow {
                let text = "true contradicts `tenants`, whose keys would protect nothing: remove one of the two";
                allow.fault(&mut self.problems, text);
            }
            return Access::Tenants(tenants);
        }
        if allow.is_none() && !bad {
            for (address, at) in asked {
                if !is_loopback(address.ip()) {
                    let text = format!(
                        "{address} can be reached by others, and without tenants anyone may ask: add `tenants`, or \
                         listen on 127.0.0.1, or set server.allow_anonymous: true"
                    );
                    self.fault_of(at.as_ref(), text);
                    // `port` stands for two addresses; one line is enough.
                    if at.as_ref().is_some_and(|at| at.key.ends_with("port")) {
                        break;
                    }
                }
            }
        }
        Access::Anonymous {
            explicit: allow.is_some(),
        }
    }

    fn control(&mut self, field: Field<String>) -> ControlSocket {
        let Some(given) = field.given() else {
            return ControlSocket::Auto;
        };
        match &*given.value {
            "auto" => return ControlSocket::Auto,
            "off" => return ControlSocket::Off,
            "" => given.fault(&mut self.problems, "the path is empty: give auto, off, or a path"),
            _ => {}
        }
        let path = self.path(&given);
        let len = path.as_os_str().len();
        if len > MAX_SOCKET_PATH {
            let text =
                format!("the path has {len} bytes, and one of a socket at most {MAX_SOCKET_PATH}: give a shorter one");
            given.fault(&mut self.problems, text);
        }
        ControlSocket::Path(path)
    }

    /// What all connections may hold: as the file says, or an eighth of the memory that the process may use.
    fn request_memory(&mut self, field: Field<Amount>, requests: &Requests) -> RequestMemory {
        const MOST: u64 = 1 << 42;
        let least = requests.memory();
        let given = field.given().filter(|given| given.value.0 != "auto");
        let Some(given) = given else {
            let usable = self.surroundings.memory().unwrap_or(0);
            return RequestMemory {
                bytes: (usable / 8).clamp(least.max(64 << 20), MOST),
                eighth_of: Some(usable),
            };
        };
        let size = units::size(&given.value.0);
        match size {
            None => self.no_amount(&given, "auto or a size, such as 512MiB or 4GiB"),
            Some(size) if size < least => {
                let text = format!(
                    "{} is not possible: a request of max_body_bytes needs {}: give at least that, or auto",
                    given.value,
                    units::show_size(least)
                );
                given.fault(&mut self.problems, text);
            }
            Some(size) => {
                let _ = self.in_range(&given, size, 0..=MOST, units::show_size);
            }
        }
        RequestMemory {
            bytes: size.unwrap_or(least),
            eighth_of: None,
        }
    }

    fn workers(&mut self, field: Field<AutoOr<Vec<At<i128>>>>) -> Workers {
        let Some(given) = field.given() else {
            return Workers::Auto;
        };
        let AutoOr::Own(list) = &given.value else {
            return Workers::Auto;
        };
        if list.is_empty() {
            let text = "the list holds no core: give auto, or cores such as [0, 2]";
            given.fault(&mut self.problems, text);
        }
        let usable = self.surroundings.cores();
        let mut cores: Vec<usize> = Vec::new();
        for core in list {
            let number = usize::try_from(core.value).unwrap_or(usize::MAX);
            if cores.contains(&number) {
                core.fault(
                    &mut self.problems,
                    format_args!("core {number} is there twice: remove one"),
                );
            } else if usable.contains(&number) {
                cores.push(number);
            } else {
                let text = format!(
                    "this process may not use a core {}: give some of {}",
                    core.value,
                    show_cores(&usable)
                );
                core.fault(&mut self.problems, text);
            }
        }
        Workers::Cores(cores)
    }

    /// A fault at this place of the file, or of the argument `--listen`.
    fn fault_of(&mut self, at: Option<&At<()>>, text: String) {
        match at {
            Some(at) => at.fault(&mut self.problems, text),
            None => self.problems.argument("--listen", text),
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// Whether only this machine reaches it, also when it is written as an IPv4 address in IPv6.
fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Cores as ranges: `0-3, 8`.
fn show_cores(cores: &[usize]) -> String {
    let runs = cores.chunk_by(|a, b| a + 1 == *b);
    let runs: Vec<String> = runs
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            _ => run.iter().map(ToString::to_string).collect(),
        })
        .collect();
    if runs.is_empty() {
        "those that the system allows".into()
    } else {
        runs.join(", ")
    }
}
