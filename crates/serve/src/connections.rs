//! What every connection is given: packets that do not wait to be filled, and an end if its client takes nothing.

use axum_server::accept::Accept;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_io_timeout::TimeoutStream;

/// How connections are accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connections {
    /// How long a client may take nothing of what is written to it.
    pub(crate) patience: Duration,
}

impl<S> Accept<TcpStream, S> for Connections {
    type Stream = Pin<Box<TimeoutStream<TcpStream>>>;
    type Service = S;
    type Future = Ready<io::Result<(Self::Stream, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        // Each token is a packet of its own: it must not wait until the one before it is acknowledged.
        ready(stream.set_nodelay(true).map(|()| {
            let mut stream = TimeoutStream::new(stream);
            stream.set_write_timeout(Some(self.patience));
            (Box::pin(stream), service)
        }))
    }
}
