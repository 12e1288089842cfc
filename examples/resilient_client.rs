//! A client that survives a bad server: `cargo run --example resilient_client`.
//!
//! The server is a real one, on a port of its own. It fails, rate limits, recovers, and is down in the end; what it
//! counts is printed beside what the client saw.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use throttle::retry::{
    DecorrelatedJitter, ErrorClass, Retry, RetryBudget, RetryError, TokenBucket, parse_retry_after,
};
use throttle::{Clock, SystemClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let client = Client::new(Server::start().await?)?;

    let before = Instant::now();
    let greeting = client.get("/flaky").await?;
    println!(
        "/flaky:   {greeting:?} after two 503 and one 429 that asked for 1 s; took {:?}",
        before.elapsed()
    );

    let end = client.get("/missing").await;
    println!("/missing: {}; a 404 is not retried", shown(&end));

    let mut retries_refused = 0;
    let calls_before = client.server.calls.load(Ordering::Relaxed);
    for _ in 0..30 {
        match client.get("/down").await {
            Err(RetryError::RetryBudgetExhausted { .. }) => retries_refused += 1,
            other => println!("/down:    {}", shown(&other)),
        }
    }
    let calls = client.server.calls.load(Ordering::Relaxed) - calls_before;
    println!(
        "/down:    30 requests became {calls} calls, not 120: {retries_refused} times no budget for a retry"
    );

    for _ in 0..20 {
        client.get("/").await?;
    }
    println!("/:        20 successes; the budget is back at {}", client.budget.balance(SystemClock.now()));

    let refused = loop {
        if let Err(end) = client.get("/").await {
            break end;
        }
    };
    println!("/:        {refused}; the client keeps to its own limit");
    Ok(())
}

/// A client of one service: what it may send is limited, and what fails is retried within a budget.
struct Client {
    server: Arc<Server>,
    budget: Arc<RetryBudget>,
    retry: Retry<DecorrelatedJitter, TokenBucket>,
}

impl Client {
    fn new(server: Arc<Server>) -> Result<Self, BoxError> {
        let budget = Arc::new(RetryBudget::default());
        let retry =
            Retry::builder(DecorrelatedJitter::new(Duration::from_millis(10), Duration::from_millis(200))?)
                .admission(TokenBucket::new("8/s burst 80")?)
                .budget(Arc::clone(&budget))
                .max_attempts(4)
                .deadline(Duration::from_secs(10))
                .build()?;
        Ok(Self { server, budget, retry })
    }

    async fn get(&self, path: &str) -> Result<String, RetryError<ApiError>> {
        self.retry.run(|| get_once(self.server.address, path), classify).await
    }
}

#[derive(Debug, thiserror::Error)]
enum ApiError {
    #[error("the server answered {status}")]
    Status { status: u16, retry_after: Option<Duration> },
    #[error("no answer from the server")]
    Io(#[from] io::Error),
}

fn classify(error: &ApiError) -> ErrorClass {
    match error {
        ApiError::Status { status: 429 | 503, retry_after } => ErrorClass::retry_after(*retry_after),
        ApiError::Status { .. } => ErrorClass::Permanent,
        ApiError::Io(_) => ErrorClass::Retryable,
    }
}

async fn get_once(server: SocketAddr, path: &str) -> Result<String, ApiError> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {server}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.take(4_096).read_to_string(&mut answer).await?;
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(malformed)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(malformed)?;
    if status == 200 {
        return Ok(body.to_owned());
    }
    let value = head.lines().find_map(|line| line.strip_prefix("Retry-After: "));
    let retry_after = value.and_then(|value| parse_retry_after(value, SystemClock.now()));
    Err(ApiError::Status { status, retry_after })
}

fn shown(end: &Result<String, RetryError<ApiError>>) -> String {
    match end {
        Ok(body) => body.clone(),
        Err(error) => error.to_string(),
    }
}

/// A bad server.
struct Server {
    address: SocketAddr,
    calls: AtomicU32,
    flaky_calls: AtomicU32,
}

impl Server {
    async fn start() -> io::Result<Arc<Self>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server = Arc::new(Self { address, calls: AtomicU32::new(0), flaky_calls: AtomicU32::new(0) });
        tokio::spawn(Arc::clone(&server).serve(listener));
        Ok(server)
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) -> io::Result<()> {
        loop {
            let (stream, _) = listener.accept().await?;
            let server = Arc::clone(&self);
            tokio::spawn(async move { server.answer(stream).await });
        }
    }

    async fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") && request.len() < 4_096 {
            if stream.read_buf(&mut request).await? == 0 {
                return Ok(());
            }
        }
        let request = String::from_utf8_lossy(&request);
        let (status, headers, body) = self.route(request.split(' ').nth(1).unwrap_or("/"));
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(answer.as_bytes()).await
    }

    fn route(&self, path: &str) -> (&'static str, &'static str, &'static str) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match path {
            "/" => ("200 OK", "", "hello"),
            "/flaky" => match self.flaky_calls.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => ("503 Service Unavailable", "", ""),
                2 => ("429 Too Many Requests", "Retry-After: 1\r\n", ""),
                _ => ("200 OK", "", "hello at last"),
            },
            "/down" => ("503 Service Unavailable", "", ""),
            _ => ("404 Not Found", "", ""),
        }
    }
}
