// Checks what deploy/ has with the code that will read it: Kubernetes objects by the types of the
// API, strictly; alert rules by Prometheus' own parser; the expressions of a Grafana dashboard by
// the parser of PromQL.
//
//	check objects FILE|-     check rules FILE     check dashboard FILE
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

var kinds = map[string]func() any{
	"v1/Secret":                     func() any { return new(core.Secret) },
	"v1/Service":                    func() any { return new(core.Service) },
	"v1/ServiceAccount":             func() any { return new(core.ServiceAccount) },
	"apps/v1/StatefulSet":           func() any { return new(apps.StatefulSet) },
	"policy/v1/PodDisruptionBudget": func() any { return new(policy.PodDisruptionBudget) },
}

func main() {
	data, err := io.ReadAll(os.Stdin)
	if os.Args[2] != "-" {
		data, err = os.ReadFile(os.Args[2])
	}
	if err == nil {
		err = map[string]func([]byte) error{
			"objects": objects, "rules": rules, "dashboard": dashboard,
		}[os.Args[1]](data)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func objects(data []byte) error {
	count := 0
	for _, document := range bytes.Split(data, []byte("\n---")) {
		var head struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		}
		if err := yaml.Unmarshal(document, &head); err != nil {
			return err
		}
		if head.Kind == "" {
			continue
		}
		// Types of others (ServiceMonitor, ScaledObject) are not in the API of Kubernetes.
		if make, ok := kinds[head.APIVersion+"/"+head.Kind]; ok {
			if err := yaml.UnmarshalStrict(document, make()); err != nil {
				return fmt.Errorf("%s: %w", head.Kind, err)
			}
			count++
		}
	}
	fmt.Println(count)
	return nil
}

func rules(data []byte) error {
	groups, problems := rulefmt.Parse(data, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.Default())
	if len(problems) > 0 {
		return problems[0]
	}
	for _, group := range groups.Groups {
		fmt.Println(len(group.Rules))
	}
	return nil
}

func dashboard(data []byte) error {
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &board); err != nil {
		return err
	}
	count := 0
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			text := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			if _, err := parser.NewParser(parser.Options{}).ParseExpr(text); err != nil {
				return fmt.Errorf("%s: %w", panel.Title, err)
			}
			count++
		}
	}
	fmt.Println(count)
	return nil
}
