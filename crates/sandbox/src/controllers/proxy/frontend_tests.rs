//! Real sockets on ephemeral ports of the loopback interface; every wait is for a condition, with a deadline.

use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DEADLINE: Duration = Duration::from_secs(10);

/// A server that answers every connection with its name and then echoes.
async fn server(name: &'static str, tasks: &TaskTracker, cancel: &CancellationToken) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let cancel = cancel.clone();
    tasks.spawn(async move {
        while let Some(Ok((mut client, _))) = cancel.run_until_cancelled(listener.accept()).await {
            let cancel = cancel.clone();
            tokio::spawn(async move {
                let echo = async {
                    client.write_all(name.as_bytes()).await.expect("written");
                    let (mut read, mut write) = client.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                };
                cancel.run_until_cancelled(echo).await;
            });
        }
    });
    address
}

async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a listener")
        .local_addr()
        .expect("an address")
}

async fn greeting(address: SocketAddr) -> (TcpStream, String) {
    let mut client = TcpStream::connect(address).await.expect("connected");
    let mut name = [0; 1];
    tokio::time::timeout(DEADLINE, client.read_exact(&mut name))
        .await
        .expect("in time")
        .expect("read");
    (client, String::from_utf8_lossy(&name).into_owned())
}

fn route(ready: &[SocketAddr], known: &[SocketAddr]) -> Route {
    Route {
        ready: ready.to_vec(),
        known: known.iter().copied().collect(),
    }
}

struct Stage {
    cancel: CancellationToken,
    tasks: TaskTracker,
}

impl Stage {
    fn new() -> Stage {
        Stage {
            cancel: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    async fn frontend(&self, route: Route) -> (SocketAddr, Frontend) {
        let address = free_address().await;
        let frontend = Frontend::new(
            address,
            &self.cancel,
            &self.tasks,
            Arc::new(Semaphore::new(8)),
        );
        frontend.follow(route).await.expect("listening");
        (address, frontend)
    }

    /// Everything that was started has ended.
    async fn end(self) {
        self.cancel.cancel();
        self.tasks.close();
        tokio::time::timeout(DEADLINE, self.tasks.wait())
            .await
            .expect("all tasks end");
    }
}

#[tokio::test]
async fn connections_take_turns_and_data_flows_both_ways() {
    let stage = Stage::new();
    let (a, b) = (
        server("a", &stage.tasks, &stage.cancel).await,
        server("b", &stage.tasks, &stage.cancel).await,
    );
    let (address, _frontend) = stage.frontend(route(&[a, b], &[a, b])).await;
    let mut names = Vec::new();
    for _ in 0..4 {
        let (mut client, name) = greeting(address).await;
        client.write_all(b"ping").await.expect("written");
        client.shutdown().await.expect("half closed");
        let mut rest = String::new();
        tokio::time::timeout(DEADLINE, client.read_to_string(&mut rest))
            .await
            .expect("in time")
            .expect("read");
        assert_eq!(rest, "ping");
        names.push(name);
    }
    assert_eq!(names, ["a", "b", "a", "b"]);
    stage.end().await;
}

#[tokio::test]
async fn a_dead_endpoint_is_skipped() {
    let stage = Stage::new();
    let dead = free_address().await;
    let alive = server("a", &stage.tasks, &stage.cancel).await;
    let (address, _frontend) = stage.frontend(route(&[dead, alive], &[dead, alive])).await;
    for _ in 0..2 {
        assert_eq!(greeting(address).await.1, "a");
    }
    stage.end().await;
}

#[tokio::test]
async fn connections_to_an_endpoint_that_is_gone_are_closed_and_others_stay() {
    let stage = Stage::new();
    let (a, b) = (
        server("a", &stage.tasks, &stage.cancel).await,
        server("b", &stage.tasks, &stage.cancel).await,
    );
    let (address, frontend) = stage.frontend(route(&[a, b], &[a, b])).await;
    let (mut to_a, _) = greeting(address).await;
    let (mut to_b, _) = greeting(address).await;
    frontend.follow(route(&[b], &[b])).await.expect("followed");
    let mut rest = Vec::new();
    // Closed or reset, either is the end of it.
    let _ = tokio::time::timeout(DEADLINE, to_a.read_to_end(&mut rest))
        .await
        .expect("closed in time");
    to_b.write_all(b"x").await.expect("written");
    let mut echo = [0; 1];
    tokio::time::timeout(DEADLINE, to_b.read_exact(&mut echo))
        .await
        .expect("in time")
        .expect("still open");
    stage.end().await;
}

#[tokio::test]
async fn with_nobody_ready_new_connections_are_refused_and_old_ones_go_on() {
    let stage = Stage::new();
    let a = server("a", &stage.tasks, &stage.cancel).await;
    let (address, frontend) = stage.frontend(route(&[a], &[a])).await;
    let (mut client, _) = greeting(address).await;
    frontend.follow(route(&[], &[a])).await.expect("followed");
    let refused = TcpStream::connect(address)
        .await
        .expect_err("nobody listens");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    client.write_all(b"x").await.expect("written");
    let mut echo = [0; 1];
    tokio::time::timeout(DEADLINE, client.read_exact(&mut echo))
        .await
        .expect("in time")
        .expect("still open");
    frontend
        .follow(route(&[a], &[a]))
        .await
        .expect("listening again");
    assert_eq!(greeting(address).await.1, "a");
    stage.end().await;
}

#[tokio::test]
async fn dropping_a_frontend_closes_everything() {
    let stage = Stage::new();
    let a = server("a", &stage.tasks, &stage.cancel).await;
    let (address, frontend) = stage.frontend(route(&[a], &[a])).await;
    let (mut client, _) = greeting(address).await;
    drop(frontend);
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(DEADLINE, client.read_to_end(&mut rest))
        .await
        .expect("closed in time");
    stage.end().await;
}
