package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	asyncTimeout = 30 * time.Second
	orderKeys    = 3
)

type sender struct {
	*common
	producer rocketmq.Producer
	lock     sync.Mutex
	results  []fields
	errors   []fields
}

func send(arguments []string, _ <-chan struct{}) (fields, error) {
	flags, options := newFlags("send")
	mode := flags.String("mode", "sync", "sync, async, oneway, batch, queue or orderkey")
	size := flags.Int("size", 32, "bytes of a body")
	body := flags.String("body", "", "text of every body")
	keys := flags.String("keys", "", "keys; {} becomes the index")
	batch := flags.Int("batch", 16, "messages of a batch")
	queue := flags.Int("queue", 0, "queue of mode queue")
	compressOver := flags.Int("compress-over", 4096, "bytes from which on bodies are compressed")
	properties := flags.String("property", "", "key=value")
	if err := options.parse(flags, arguments); err != nil {
		return nil, err
	}
	messages := make([]*primitive.Message, options.count)
	for index := range messages {
		text := makeBody(index, *size)
		if *body != "" {
			text = []byte(*body)
		}
		messages[index] = newMessage(options, text, strings.ReplaceAll(*keys, "{}", fmt.Sprint(index)), *properties)
	}
	s := &sender{common: options, results: []fields{}, errors: []fields{}}
	if err := s.start(*mode, *compressOver, *queue); err != nil {
		return nil, err
	}
	if err := s.send(*mode, messages, *batch); err != nil {
		return nil, err
	}
	if err := s.producer.Shutdown(); err != nil {
		return nil, err
	}
	return fields{
		"ok": len(s.errors) == 0, "mode": *mode, "count": len(messages), "results": s.results, "errors": s.errors,
	}, nil
}

func newMessage(options *common, body []byte, keys, property string) *primitive.Message {
	message := primitive.NewMessage(options.topic, body)
	if options.tag != "" {
		message.WithTag(options.tag)
	}
	if keys != "" {
		message.WithKeys([]string{keys})
	}
	if name, value, found := strings.Cut(property, "="); found {
		message.WithProperty(name, value)
	}
	return message
}

func (s *sender) start(mode string, compressOver, queue int) error {
	options := []producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver(s.nameServers())),
		producer.WithGroupName(s.group),
		producer.WithRetry(2),
		producer.WithCredentials(s.keys),
		producer.WithCompressMsgBodyOverHowmuch(compressOver),
	}
	switch mode {
	case "queue":
		options = append(options, producer.WithQueueSelector(fixedQueue(queue)))
	case "orderkey":
		options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	}
	var err error
	if s.producer, err = rocketmq.NewProducer(options...); err != nil {
		return err
	}
	return s.producer.Start()
}

func (s *sender) send(mode string, messages []*primitive.Message, batch int) error {
	switch mode {
	case "sync", "queue":
		s.each(messages)
	case "orderkey":
		for index, message := range messages {
			message.WithShardingKey(fmt.Sprintf("order-%d", index%orderKeys))
		}
		s.each(messages)
	case "oneway":
		for index, message := range messages {
			s.record(index, 1, nil, s.producer.SendOneWay(context.Background(), message))
		}
		// The client may exit before its last one-way messages are sent. The broker has them when it answers
		// this one, which comes behind them on the connection.
		last := primitive.NewMessage(messages[0].Topic, []byte("last")).WithTag("last")
		if _, err := s.producer.SendSync(context.Background(), last); err != nil {
			return err
		}
	case "batch":
		for from := 0; from < len(messages); from += batch {
			part := messages[from:min(from+batch, len(messages))]
			result, err := s.producer.SendSync(context.Background(), part...)
			s.record(from, len(part), result, err)
		}
	case "async":
		s.async(messages)
	default:
		return usageError{"--mode sync, async, oneway, batch, queue or orderkey, not " + mode}
	}
	return nil
}

func (s *sender) each(messages []*primitive.Message) {
	for index, message := range messages {
		result, err := s.producer.SendSync(context.Background(), message)
		s.record(index, 1, result, err)
	}
}

func (s *sender) async(messages []*primitive.Message) {
	var open sync.WaitGroup
	for index, message := range messages {
		open.Add(1)
		err := s.producer.SendAsync(context.Background(),
			func(_ context.Context, result *primitive.SendResult, err error) {
				s.record(index, 1, result, err)
				open.Done()
			}, message)
		if err != nil {
			s.record(index, 1, nil, err)
			open.Done()
		}
	}
	answered := make(chan struct{})
	go func() {
		open.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(asyncTimeout):
		s.record(-1, 0, nil, errors.New("asynchronous sends were never answered"))
	}
}

func (s *sender) record(index, count int, result *primitive.SendResult, err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if err != nil {
		failed := describe(err)
		failed["index"] = index
		s.errors = append(s.errors, failed)
		return
	}
	if result == nil {
		s.results = append(s.results, fields{"index": index, "count": count, "status": "ONEWAY"})
		return
	}
	s.results = append(s.results, fields{
		"index": index, "count": count, "status": statusNames[result.Status], "msgId": result.MsgID,
		"offsetMsgId": result.OffsetMsgID, "broker": result.MessageQueue.BrokerName,
		"queueId": result.MessageQueue.QueueId, "queueOffset": result.QueueOffset,
		"transactionId": result.TransactionID, "regionId": result.RegionID, "traceOn": result.TraceOn,
	})
}

// statusNames are the names that the Java client uses.
var statusNames = map[primitive.SendStatus]string{
	primitive.SendOK:                "SEND_OK",
	primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
	primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
	primitive.SendUnknownError:      "UNKNOWN",
}

// fixedQueue always selects the queue of that number.
type fixedQueue int

func (f fixedQueue) Select(
	_ *primitive.Message, queues []*primitive.MessageQueue, _ string,
) *primitive.MessageQueue {
	for _, queue := range queues {
		if queue.QueueId == int(f) {
			return queue
		}
	}
	return nil
}
