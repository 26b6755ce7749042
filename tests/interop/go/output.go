package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const (
	fill             = "abcdefghijklmnopqrstuvwxyz"
	longestShownBody = 256
)

var output sync.Mutex

func emit(event string, values fields) {
	line := fields{"event": event}
	for name, value := range values {
		line[name] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func emitResult(values fields) {
	if _, said := values["ok"]; !said {
		values["ok"] = true
	}
	emit("result", values)
}

func describe(err error) fields {
	described := fields{
		"class": strings.TrimPrefix(fmt.Sprintf("%T", err), "*"), "code": nil, "remark": nil,
		"message": err.Error(), "causes": []fields{},
	}
	var refused *primitive.MQBrokerErr
	if errors.As(err, &refused) {
		described["code"], described["remark"] = refused.ResponseCode, refused.ErrorMessage
	}
	return described
}

// makeBody returns the body that the Java and Node programs make too: eight digits, a colon, the alphabet over and over.
func makeBody(index, size int) []byte {
	text := fmt.Sprintf("%08d:", index) + strings.Repeat(fill, size/len(fill)+1)
	return []byte(text[:size])
}

func describeMessage(message *primitive.MessageExt) fields {
	digest := sha256.Sum256(message.Body)
	described := fields{
		"topic": message.Topic, "msgId": message.MsgId, "offsetMsgId": message.OffsetMsgId,
		"queueId": message.Queue.QueueId, "broker": message.Queue.BrokerName, "queueOffset": message.QueueOffset,
		"commitLogOffset": message.CommitLogOffset, "sysFlag": message.SysFlag, "flag": message.Flag,
		"bornTimestamp": message.BornTimestamp, "storeTimestamp": message.StoreTimestamp,
		"bornHost": message.BornHost, "storeHost": message.StoreHost, "reconsumeTimes": message.ReconsumeTimes,
		"tags": message.GetTags(), "keys": message.GetKeys(), "properties": message.GetProperties(),
		"bodySize": len(message.Body), "bodySha256": hex.EncodeToString(digest[:]), "body": nil,
	}
	if len(message.Body) <= longestShownBody {
		described["body"] = string(message.Body)
	}
	return described
}
