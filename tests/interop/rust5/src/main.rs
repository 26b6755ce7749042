//! Runs one scenario against a gRPC endpoint: `interop-rust5 HOST:PORT SCENARIO TOPIC GROUP`.
//!
//! Prints an event, one JSON object, a line; the last one is "result". The scenarios are those of
//! `java5/src/main/java/interop5/Main.java`. Release 5.0.0 of this client has no push consumer, no change of
//! invisible times and no recall: the scenario `fifo` receives, `normal` lets a message become visible again.

use std::collections::HashMap;
use std::error::Error;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};

const INVISIBLE: Duration = Duration::from_secs(3);
const REQUEST: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(100);
const HELD: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(40);

type Outcome = Result<(), Box<dyn Error>>;

struct Scenario {
    endpoint: String,
    topic: String,
    group: String,
}

impl Scenario {
    fn client(&self) -> ClientOption {
        let mut option = ClientOption::default();
        option.set_access_url(&self.endpoint);
        option.set_enable_tls(false);
        option.set_timeout(REQUEST);
        option.set_long_polling_timeout(HELD);
        option
    }

    async fn producer(&self) -> Result<Producer, Box<dyn Error>> {
        let mut option = ProducerOption::default();
        option.set_topics(vec![self.topic.as_str()]);
        let checker = Box::new(|_: String, view: MessageView| {
            println!("{{\"event\":\"checked\",\"body\":\"{}\"}}", body(&view));
            TransactionResolution::COMMIT
        });
        let mut producer = Producer::new_transaction_producer(option, self.client(), checker)?;
        producer.start().await?;
        Ok(producer)
    }

    async fn consumer(&self) -> Result<SimpleConsumer, Box<dyn Error>> {
        let mut option = SimpleConsumerOption::default();
        option.set_topics(vec![self.topic.as_str()]);
        option.set_consumer_group(&self.group);
        let mut consumer = SimpleConsumer::new(option, self.client())?;
        consumer.start().await?;
        Ok(consumer)
    }

    /// Receive until `count` messages were accepted. `refuses` decides about each delivery; a refused message
    /// is not acknowledged, and becomes visible again.
    async fn receive(
        &self,
        consumer: &SimpleConsumer,
        count: usize,
        event: &str,
        mut refuses: impl FnMut(&MessageView) -> bool,
    ) -> Outcome {
        let (end, all) = (Instant::now() + PATIENCE, FilterExpression::new(FilterType::Tag, "*"));
        let mut accepted = 0;
        while accepted < count && Instant::now() < end {
            // The client takes "no new message" for an error.
            let views = match consumer.receive_with(&self.topic, &all, 16, INVISIBLE).await {
                Ok(views) => views,
                Err(error) => {
                    eprintln!("nothing received: {error}");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            for view in views {
                let refused = refuses(&view);
                print_view(event, &view, !refused);
                if !refused {
                    consumer.ack(&view).await?;
                    accepted += 1;
                } else if view.message_group().is_some() {
                    break; // the messages behind it wait
                }
            }
        }
        Ok(())
    }

    async fn normal(&self) -> Outcome {
        let (producer, consumer) = (self.producer().await?, self.consumer().await?);
        for body in ["a", "b"] {
            let message = MessageBuilder::builder()
                .set_topic(&self.topic)
                .set_body(body.into())
                .set_tag(format!("T{body}"))
                .set_keys(vec![format!("key-{body}")])
                .set_properties(HashMap::from([("colour", "red")]))
                .build()?;
            let receipt = producer.send(message).await?;
            println!("{{\"event\":\"sent\",\"body\":\"{body}\",\"id\":\"{}\"}}", receipt.message_id());
        }
        self.receive(&consumer, 2, "received", |view| body(view) == "b" && view.delivery_attempt() == 1)
            .await?;
        producer.shutdown().await?;
        consumer.shutdown().await?;
        Ok(())
    }

    async fn fifo(&self) -> Outcome {
        let (producer, consumer) = (self.producer().await?, self.consumer().await?);
        for number in 0..9 {
            let group = format!("g{}", number % 3);
            let body = format!("{group}:{}", number / 3);
            let message = MessageBuilder::fifo_message_builder(&self.topic, body.into(), group).build()?;
            producer.send(message).await?;
        }
        let mut delivered = 0;
        self.receive(&consumer, 9, "delivered", |_| {
            delivered += 1;
            delivered == 1
        })
        .await?;
        producer.shutdown().await?;
        consumer.shutdown().await?;
        Ok(())
    }

    async fn delay(&self) -> Outcome {
        let (producer, consumer) = (self.producer().await?, self.consumer().await?);
        let due = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() + 3;
        let message = MessageBuilder::delay_message_builder(&self.topic, "kept".into(), due as i64).build()?;
        producer.send(message).await?;
        println!("{{\"event\":\"due\",\"at_ms\":{}}}", due * 1000);
        self.receive(&consumer, 1, "received", |_| false).await?;
        producer.shutdown().await?;
        consumer.shutdown().await?;
        Ok(())
    }

    async fn transaction(&self) -> Outcome {
        let (producer, consumer) = (self.producer().await?, self.consumer().await?);
        for body in ["rolled back", "open", "committed"] {
            let message = MessageBuilder::transaction_message_builder(&self.topic, body.into()).build()?;
            let transaction = producer.send_transaction_message(message).await?;
            match body {
                "committed" => transaction.commit().await?,
                "rolled back" => transaction.rollback().await?,
                _ => (),
            }
        }
        self.receive(&consumer, 2, "received", |_| false).await?;
        producer.shutdown().await?;
        consumer.shutdown().await?;
        Ok(())
    }
}

fn body(view: &MessageView) -> String {
    String::from_utf8_lossy(view.body()).into_owned()
}

fn print_view(event: &str, view: &MessageView, accepted: bool) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    println!(
        "{{\"event\":\"{event}\",\"body\":\"{}\",\"id\":\"{}\",\"tag\":\"{}\",\"keys\":\"{}\",\
         \"colour\":\"{}\",\"group\":\"{}\",\"attempt\":{},\"at_ms\":{now},\"accepted\":{accepted}}}",
        body(view),
        view.message_id(),
        view.tag().unwrap_or_default(),
        view.keys().join(" "),
        view.properties().get("colour").map(String::as_str).unwrap_or_default(),
        view.message_group().unwrap_or_default(),
        view.delivery_attempt(),
    );
}

#[tokio::main]
async fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [endpoint, scenario, topic, group] = <[String; 4]>::try_from(words).map_err(|_| "four arguments are needed")?;
    let run = Scenario { endpoint, topic, group };
    match scenario.as_str() {
        "normal" => run.normal().await?,
        "fifo" => run.fifo().await?,
        "delay" => run.delay().await?,
        "transaction" => run.transaction().await?,
        other => return Err(format!("unknown scenario {other}").into()),
    }
    println!("{{\"event\":\"result\",\"ok\":true}}");
    Ok(())
}
