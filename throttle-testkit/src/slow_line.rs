//! [`SlowLine`]: a network that takes its time.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// How many pieces may be on the line in one direction.
const PIECES: usize = 64;

/// The most bytes in a piece.
const PIECE: usize = 16 << 10;

/// A line to a server, on a port of this machine: what is sent arrives after a delay, in each direction. Dropped, it is cut.
///
/// For what a backend does when it has less time than its store is away.
///
/// ```
/// # use std::time::{Duration, Instant};
/// # use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// # use tokio::net::{TcpListener, TcpStream};
/// use throttle_testkit::SlowLine;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let server = TcpListener::bind("127.0.0.1:0").await?;
/// let line = SlowLine::to(server.local_addr()?.to_string(), Duration::from_millis(50)).await?;
/// let since = Instant::now();
/// let mut client = TcpStream::connect(line.address()).await?;
/// client.write_all(b"hello").await?;
/// let (mut connection, _) = server.accept().await?;
/// let mut heard = [0; 5];
/// connection.read_exact(&mut heard).await?;
/// assert_eq!(&heard, b"hello");
/// assert!(since.elapsed() >= Duration::from_millis(50));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SlowLine {
    address: SocketAddr,
    /// Aborted when dropped.
    _accepting: JoinSet<()>,
}

impl SlowLine {
    /// A line to `server`, a host and a port.
    ///
    /// # Errors
    ///
    /// If no port of this machine can be listened on.
    pub async fn to(server: impl Into<String>, delay: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, server.into(), delay));
        Ok(Self { address, _accepting: accepting })
    }

    /// Where it begins.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn accept(listener: TcpListener, server: String, delay: Duration) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(carry(client, server.clone(), delay));
        while connections.try_join_next().is_some() {}
    }
}

async fn carry(mut client: TcpStream, server: String, delay: Duration) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::select! {
        () = carry_one_way(from_client, to_server, delay) => {}
        () = carry_one_way(from_server, to_client, delay) => {}
    }
}

/// Until one side closes.
async fn carry_one_way(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, delay: Duration) {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES);
    let take = async move {
        let mut piece = vec![0; PIECE];
        while let Ok(length @ 1..) = from.read(&mut piece).await {
            let taken = piece.get(..length).unwrap_or_default().to_vec();
            if sender.send((Instant::now() + delay, taken)).await.is_err() {
                return;
            }
        }
    };
    let give = async move {
        while let Some((due, piece)) = receiver.recv().await {
            sleep_until(due).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(take, give);
}
