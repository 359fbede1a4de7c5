//! The server itself: listens, serves until it is asked to end, and lets running answers finish.

use crate::app::App;
use crate::connections::Connections;
use crate::error::ServeError;
use crate::guard::{Keys, cors};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::router::router;
use crate::shelf::Shelf;
use crate::tls;
use axum::Router;
use axum_server::Handle;
use axum_server::tls_rustls::RustlsAcceptor;
use hyper_util::rt::TokioTimer;
use std::future::Future;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// A server that listens already; [`Server::run`] answers.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    router: Router,
    options: Options,
}

impl Server {
    /// Checks the options and takes the address. No model is opened yet.
    ///
    /// # Errors
    /// [`ServeError`]: what is wrong with the options, or with the address.
    pub fn bind(options: Options) -> Result<Server, ServeError> {
        let (app, router) = service(&options)?;
        let name = format!("{}:{}", options.host, options.port);
        let fail = |error| ServeError::Bind { address: name.clone(), error };
        let addresses: Vec<SocketAddr> =
            (options.host.as_str(), options.port).to_socket_addrs().map_err(fail)?.collect();
        let listener = TcpListener::bind(addresses.as_slice()).map_err(fail)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() && options.keys.is_empty() {
            tracing::warn!(%address, "anybody who reaches this address can use the models: set a key (--api-key)");
        }
        Ok(Server { listener, address, app, router, options })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// [`Server::run`] on threads of its own, until a SIGTERM comes or `interrupted` is true.
    ///
    /// # Errors
    /// Those of [`Server::run`].
    pub fn block(self, interrupted: impl Fn() -> bool) -> Result<(), ServeError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let result = runtime.block_on(async {
            let terminated = terminated()?;
            let end = async {
                tokio::select! {
                    () = terminated => {}
                    () = until(&interrupted) => {}
                }
            };
            self.run(end).await
        });
        // What still runs was given its time.
        runtime.shutdown_timeout(Duration::from_millis(200));
        result
    }

    /// Serves until `end` comes, then refuses what is new, lets what runs finish for as long as [`Options::drain`]
    /// says, and returns. Models are opened meanwhile; `/health` tells when they are there.
    ///
    /// # Errors
    /// A model that cannot be opened, a certificate that cannot be used, or what the system says.
    pub async fn run(self, end: impl Future<Output = ()>) -> Result<(), ServeError> {
        let handle = Handle::new();
        let tls = self.options.tls.as_ref().map(tls::config).transpose()?;
        let service = self.router.into_make_service();
        let read = self.options.read_timeout;
        let (serving, listener) = (handle.clone(), self.listener);
        let connections = Connections { patience: self.options.write_timeout };
        let server = async move {
            let mut server = axum_server::from_tcp(listener)?.handle(serving).first_request_timeout(read);
            server.http_builder().http1().timer(TokioTimer::new()).header_read_timeout(read);
            match tls {
                None => server.acceptor(connections).serve(service).await,
                Some(config) => {
                    let tls = RustlsAcceptor::new(config).handshake_timeout(read).acceptor(connections);
                    server.acceptor(tls).serve(service).await
                }
            }
        };
        tokio::pin!(server);
        let app = self.app.clone();
        let open = open_all(&app, self.options.lazy);
        let idle = self.app.shelf.close_idle();
        tokio::pin!(open, idle, end);
        let mut opening = true;
        let mut idling = true;
        loop {
            tokio::select! {
                result = &mut server => return Ok(result?),
                result = &mut open, if opening => {
                    opening = false;
                    result?;
                }
                () = &mut idle, if idling => idling = false,
                () = &mut end => break,
            }
        }
        self.app.set_draining();
        tracing::info!(seconds = self.options.drain.as_secs(), "ending: what runs may finish");
        handle.graceful_shutdown(Some(self.options.drain.max(Duration::from_millis(1))));
        Ok(server.await?)
    }
}

/// The state and the routes, without a network.
pub(crate) fn service(options: &Options) -> Result<(Arc<App>, Router), ServeError> {
    options.check()?;
    let metrics = Arc::new(Metrics::new());
    let shelf = Shelf::new(options, metrics.clone())?;
    let app = Arc::new(App::new(shelf, metrics, options));
    let router = router(app.clone(), Keys(options.keys.clone()), cors(&options.origins, !options.keys.is_empty()));
    Ok((app, router))
}

async fn open_all(app: &App, lazy: bool) -> Result<(), ServeError> {
    if !lazy {
        for slot in app.shelf.slots() {
            let opened = app.shelf.open(slot).await;
            opened.map_err(|fault| ServeError::Open { name: slot.spec.name.clone(), reason: fault.message })?;
        }
    }
    app.set_ready();
    Ok(())
}

/// Waits until something is true.
async fn until(interrupted: &impl Fn() -> bool) {
    while !interrupted() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits for the signal that asks a service to end.
#[cfg(unix)]
fn terminated() -> std::io::Result<impl Future<Output = ()>> {
    let mut signal = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    Ok(async move {
        signal.recv().await;
    })
}

#[cfg(not(unix))]
fn terminated() -> std::io::Result<impl Future<Output = ()>> {
    Ok(std::future::pending())
}
