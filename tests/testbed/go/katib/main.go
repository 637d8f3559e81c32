// Program katib stands for Katib's database of metrics: a trial has reached the value that is in a file of its name.
//
//	katib ADDRESS FOLDER
package main

import (
	"context"
	"errors"
	"io/fs"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	api "github.com/kubeflow/katib/pkg/apis/manager/v1beta1"
	"google.golang.org/grpc"
)

type database struct {
	api.UnimplementedDBManagerServer
	folder string
}

func (d database) GetObservationLog(_ context.Context, asked *api.GetObservationLogRequest) (*api.GetObservationLogReply, error) {
	value, err := os.ReadFile(filepath.Join(d.folder, asked.TrialName))
	if errors.Is(err, fs.ErrNotExist) {
		return &api.GetObservationLogReply{}, nil
	}
	if err != nil {
		return nil, err
	}
	reached := &api.MetricLog{
		TimeStamp: time.Now().UTC().Format(time.RFC3339Nano),
		Metric:    &api.Metric{Name: asked.MetricName, Value: string(value)},
	}
	return &api.GetObservationLogReply{ObservationLog: &api.ObservationLog{MetricLogs: []*api.MetricLog{reached}}}, nil
}

func (d database) DeleteObservationLog(_ context.Context, asked *api.DeleteObservationLogRequest) (*api.DeleteObservationLogReply, error) {
	err := os.Remove(filepath.Join(d.folder, asked.TrialName))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return &api.DeleteObservationLogReply{}, err
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: katib ADDRESS FOLDER")
	}
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	api.RegisterDBManagerServer(server, database{folder: os.Args[2]})
	log.Fatal(server.Serve(listener))
}
