package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

var startPositions = map[string]consumer.ConsumeFromWhere{
	"first": consumer.ConsumeFromFirstOffset,
	"last":  consumer.ConsumeFromLastOffset,
}

// receiver counts what a push consumer is given, until it has all.
type receiver struct {
	expected, refuse int

	lock       sync.Mutex
	seen       map[string]bool
	deliveries int
	complete   chan struct{}
}

func consume(arguments []string, stop <-chan struct{}) (fields, error) {
	flags, options := newFlags("consume")
	from := flags.String("from", "first", "first or last")
	waitSeconds := flags.Int("wait-s", 30, "seconds to wait for the messages")
	sql := flags.String("sql", "", "SQL92 expression instead of a tag")
	orderly := flags.Bool("orderly", false, "one message of a queue at a time, in order")
	broadcast := flags.Bool("broadcast", false, "every consumer of the group gets every message")
	refuse := flags.Int("refuse-first", 0, "deliveries to refuse, for the broker to bring again")
	if err := options.parse(flags, arguments); err != nil {
		return nil, err
	}
	r := &receiver{
		expected: options.count, refuse: *refuse, seen: map[string]bool{}, complete: make(chan struct{}),
	}
	model := consumer.Clustering
	if *broadcast {
		model = consumer.BroadCasting
	}
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver(options.nameServers())),
		consumer.WithGroupName(options.group),
		consumer.WithConsumeFromWhere(startPositions[*from]),
		consumer.WithConsumerModel(model),
		consumer.WithConsumerOrder(*orderly),
		consumer.WithCredentials(options.keys),
	)
	if err != nil {
		return nil, err
	}
	selector := consumer.MessageSelector{}
	if *sql != "" {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: *sql}
	} else if options.tag != "" {
		selector = consumer.MessageSelector{Type: consumer.TAG, Expression: options.tag}
	}
	if err := c.Subscribe(options.topic, selector, r.receive(*orderly)); err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	emit("started", fields{})
	ok := false
	select {
	case <-r.complete:
		ok = true
	case <-stop:
		ok = true
	case <-time.After(time.Duration(*waitSeconds) * time.Second):
	}
	if err := c.Shutdown(); err != nil {
		return nil, err
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	return fields{"ok": ok, "count": len(r.seen), "deliveries": r.deliveries}, nil
}

func (r *receiver) receive(orderly bool) func(
	context.Context, ...*primitive.MessageExt,
) (consumer.ConsumeResult, error) {
	refused := consumer.ConsumeRetryLater
	if orderly {
		refused = consumer.SuspendCurrentQueueAMoment
	}
	return func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		if r.accept(messages) {
			return consumer.ConsumeSuccess, nil
		}
		return refused, nil
	}
}

func (r *receiver) accept(messages []*primitive.MessageExt) bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	accepted := r.refuse == 0
	if !accepted {
		r.refuse--
	}
	r.deliveries += len(messages)
	for _, message := range messages {
		described := describeMessage(message)
		described["accepted"] = accepted
		emit("message", described)
		if !accepted {
			continue
		}
		// Not the message id: the messages of one batch share theirs.
		identity := fmt.Sprint(message.Topic, message.ReconsumeTimes > 0, message.Queue, message.QueueOffset)
		if !r.seen[identity] {
			r.seen[identity] = true
			if len(r.seen) == r.expected {
				close(r.complete)
			}
		}
	}
	return accepted
}
