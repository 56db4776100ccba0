//! Asking a container how it is: the plan of a probe, the tally of its answers (pure), and the asking itself.

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::container::ContainerProcess;
use super::environment::Variables;
use super::limits::PROBE_ANSWER_BYTES;

/// Kubernetes' defaults, in seconds and counts.
const PERIOD_SECONDS: i32 = 10;
const TIMEOUT_SECONDS: i32 = 1;
const SUCCESS_THRESHOLD: i32 = 1;
const FAILURE_THRESHOLD: i32 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    Http {
        host: String,
        port: u16,
        path: String,
        headers: Vec<(String, String)>,
    },
    Tcp {
        host: String,
        port: u16,
    },
    Exec {
        command: Vec<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePlan {
    pub question: Question,
    pub initial_delay: Duration,
    pub period: Duration,
    pub timeout: Duration,
    pub success_threshold: u32,
    pub failure_threshold: u32,
}

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProbeError {
    #[error("a probe names port {0:?}, which the container does not have")]
    NoPort(String),
    #[error(
        "a probe uses {0}, which the sandbox's node does not have; use httpGet with scheme HTTP, tcpSocket or exec"
    )]
    Refused(&'static str),
    #[error("a probe's httpGet has a path or header with a line break")]
    BadRequest,
}

impl ProbePlan {
    pub fn of(probe: &Probe, container: &Container, pod_ip: Ipv4Addr) -> Result<Self, ProbeError> {
        let seconds = |value: Option<i32>, default: i32| {
            Duration::from_secs(u64::try_from(value.unwrap_or(default)).unwrap_or(0))
        };
        let count = |value: Option<i32>, default: i32| {
            u32::try_from(value.unwrap_or(default)).unwrap_or(1).max(1)
        };
        Ok(Self {
            question: question(probe, container, pod_ip)?,
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(
                probe.period_seconds.filter(|period| *period > 0),
                PERIOD_SECONDS,
            ),
            timeout: seconds(
                probe.timeout_seconds.filter(|timeout| *timeout > 0),
                TIMEOUT_SECONDS,
            ),
            success_threshold: count(probe.success_threshold, SUCCESS_THRESHOLD),
            failure_threshold: count(probe.failure_threshold, FAILURE_THRESHOLD),
        })
    }
}

fn question(
    probe: &Probe,
    container: &Container,
    pod_ip: Ipv4Addr,
) -> Result<Question, ProbeError> {
    if let Some(http) = &probe.http_get {
        if http
            .scheme
            .as_deref()
            .is_some_and(|scheme| scheme != "HTTP")
        {
            return Err(ProbeError::Refused("httpGet with scheme HTTPS"));
        }
        let headers: Vec<_> = http
            .http_headers
            .iter()
            .flatten()
            .map(|header| (header.name.clone(), header.value.clone()))
            .collect();
        let path = http
            .path
            .clone()
            .filter(|path| !path.is_empty())
            .unwrap_or_else(|| "/".to_owned());
        let broken = |text: &str| text.contains(['\r', '\n']);
        if broken(&path)
            || path.contains(' ')
            || headers
                .iter()
                .any(|(name, value)| broken(name) || broken(value))
        {
            return Err(ProbeError::BadRequest);
        }
        return Ok(Question::Http {
            host: host(http.host.as_ref(), pod_ip),
            port: port(&http.port, container)?,
            path,
            headers,
        });
    }
    if let Some(tcp) = &probe.tcp_socket {
        return Ok(Question::Tcp {
            host: host(tcp.host.as_ref(), pod_ip),
            port: port(&tcp.port, container)?,
        });
    }
    if let Some(exec) = &probe.exec {
        return Ok(Question::Exec {
            command: exec.command.clone().unwrap_or_default(),
        });
    }
    Err(ProbeError::Refused(if probe.grpc.is_some() {
        "grpc"
    } else {
        "no handler at all"
    }))
}

fn host(host: Option<&String>, pod_ip: Ipv4Addr) -> String {
    host.filter(|host| !host.is_empty())
        .cloned()
        .unwrap_or_else(|| pod_ip.to_string())
}

fn port(port: &IntOrString, container: &Container) -> Result<u16, ProbeError> {
    match port {
        IntOrString::Int(number) => {
            u16::try_from(*number).map_err(|_| ProbeError::NoPort(number.to_string()))
        }
        IntOrString::String(name) => {
            let named = container
                .ports
                .iter()
                .flatten()
                .find(|port| port.name.as_ref() == Some(name));
            let number = named
                .map(|port| port.container_port)
                .or_else(|| name.parse().ok());
            number
                .and_then(|number| u16::try_from(number).ok())
                .ok_or_else(|| ProbeError::NoPort(name.clone()))
        }
    }
}

/// Counts answers until they mean something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    last: Option<bool>,
    in_a_row: u32,
    told: Option<bool>,
}

impl Tally {
    /// Takes an answer; returns a verdict when it is a new one.
    pub fn record(&mut self, healthy: bool, plan: &ProbePlan) -> Option<bool> {
        self.in_a_row = if self.last == Some(healthy) {
            self.in_a_row + 1
        } else {
            1
        };
        self.last = Some(healthy);
        let threshold = if healthy {
            plan.success_threshold
        } else {
            plan.failure_threshold
        };
        if self.in_a_row < threshold || self.told == Some(healthy) {
            return None;
        }
        self.told = Some(healthy);
        Some(healthy)
    }
}

/// Where a probe is asked.
#[derive(Clone, Debug)]
pub struct Inside {
    pub process: ContainerProcess,
    pub variables: Variables,
    pub directory: PathBuf,
}

/// Asks once. `Err` is a failed probe, and its text is what people read.
pub async fn ask(plan: &ProbePlan, inside: &Inside) -> Result<(), String> {
    let asked = async {
        match &plan.question {
            Question::Http {
                host,
                port,
                path,
                headers,
            } => http(host, *port, path, headers).await,
            Question::Tcp { host, port } => TcpStream::connect((host.as_str(), *port))
                .await
                .map(|_| ())
                .map_err(|error| format!("dial tcp {host}:{port}: {error}")),
            Question::Exec { command } => match inside
                .process
                .execute(command, &inside.variables, &inside.directory)
                .await
            {
                Ok((true, _)) => Ok(()),
                Ok((false, said)) => Err(said),
                Err(error) => Err(format!("failed to execute the probe: {error}")),
            },
        }
    };
    match tokio::time::timeout(plan.timeout, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer within {} s", plan.timeout.as_secs())),
    }
}

async fn http(
    host: &str,
    port: u16,
    path: &str,
    headers: &[(String, String)],
) -> Result<(), String> {
    let url = format!("http://{host}:{port}{path}");
    let status = fetch_status(host, port, path, headers)
        .await
        .map_err(|error| format!("Get {url:?}: {error}"))?;
    if (200..400).contains(&status) {
        Ok(())
    } else {
        Err(format!("HTTP probe failed with statuscode: {status}"))
    }
}

/// A GET, of whose answer only the status line counts.
async fn fetch_status(
    host: &str,
    port: u16,
    path: &str,
    headers: &[(String, String)],
) -> io::Result<u16> {
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    let named = |name: &str| {
        headers
            .iter()
            .any(|(known, _)| known.eq_ignore_ascii_case(name))
    };
    let mut request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n");
    if !named("host") {
        request.push_str(&format!("Host: {host}:{port}\r\n"));
    }
    if !named("user-agent") {
        request.push_str("User-Agent: kube-probe/geodb-sandbox\r\nAccept: */*\r\n");
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    let mut stream = TcpStream::connect((host, port)).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.contains(&b'\n') && answer.len() < PROBE_ANSWER_BYTES {
        if stream.read_buf(&mut answer).await? == 0 {
            break;
        }
    }
    let line = String::from_utf8_lossy(
        answer
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default(),
    )
    .into_owned();
    let status = line
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split_whitespace().nth(1))
        .and_then(|code| code.parse().ok());
    status.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("malformed HTTP answer {line:?}"),
        )
    })
}

/// Asks again and again: every failure goes to `tell`, every new verdict to `verdict`, which says whether to go on.
pub async fn watch<F>(
    plan: &ProbePlan,
    inside: &Inside,
    tell: &(dyn Fn(String) + Send + Sync),
    verdict: impl Fn(bool) -> F,
) where
    F: Future<Output = bool>,
{
    tokio::time::sleep(plan.initial_delay).await;
    let mut tally = Tally::default();
    loop {
        let answer = ask(plan, inside).await;
        let healthy = answer.is_ok();
        if let Err(text) = answer {
            tell(text);
        }
        if let Some(new) = tally.record(healthy, plan)
            && !verdict(new).await
        {
            return;
        }
        tokio::time::sleep(plan.period).await;
    }
}

#[cfg(test)]
#[path = "probes_tests.rs"]
mod tests;
